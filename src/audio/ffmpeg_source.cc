// FFmpeg's libraries as a decoder of bytes that we hand them.
//
//   ByteStream -> AVIO callbacks -> demuxer (allow-list) -> packets of one audio stream -> decoder -> frames -> mono
//   fp32
//
// What hostile input can do is limited on every way out: the demuxer must be on a list, opening anything else is
// refused (io_open), only audio decoders may run, one allocation is limited, and packets without progress end the
// input. libswresample is not used: frames are averaged to mono here as everywhere else, and QueuedSource resamples.
#include "audio/ffmpeg_source.h"

#include <fmt/format.h>

#include <string>

#ifdef VOXRT_HAVE_FFMPEG

#include <algorithm>
#include <string_view>
#include <vector>

#include "audio/ffmpeg_support.h"
#include "audio/pcm.h"
#include "audio/queued_source.h"
#include "audio/sniff.h"
#include "base/log.h"

namespace voxrt::audio {
namespace {

constexpr int kAvioBytes = 32 << 10;
constexpr unsigned kProbeBytes = 64 << 10;  // to recognise the container
constexpr int64_t kMaxFrameSamples = int64_t{1} << 20;
constexpr int kMinProbeScore = 5;  // below: FFmpeg's guess on a few bytes that also occur by chance
constexpr int kSureProbeScore = AVPROBE_SCORE_RETRY + 1;
constexpr int kMaxIdlePackets = 4096;  // without a sample and without a byte read

class FfmpegSource final : public QueuedSource {
 public:
  FfmpegSource(std::unique_ptr<ByteStream> stream, const SourceOptions& options)
      : QueuedSource(stream->name(), options.target_rate), stream_(std::move(stream)) {}

  Status Open();

 protected:
  Result<bool> Pull(std::vector<float>* mono) override;

 private:
  static int ReadBytes(void* self, uint8_t* buffer, int size);
  static int64_t SeekBytes(void* self, int64_t offset, int whence);

  Status OpenContainer();
  Status Probe(const AVInputFormat** format);
  Status FindParameters();
  Status OpenDecoder();
  int FindAudioStream() const;
  void FillInfo();
  // Decodes until samples were appended: true, or false at the end.
  Result<bool> Decode(std::vector<float>* mono);
  // Hands the decoder the next packet of the stream, or the end.
  Status FeedDecoder();
  Result<bool> TakeFrame(std::vector<float>* mono);
  // The input's own failure where there was one, else a message of ours.
  Status Failed(std::string_view what, int error) const;

  std::unique_ptr<ByteStream> stream_;
  LastMessage last_message_;
  Status io_status_;             // of the stream: a cancelled or failed read is not the container's fault
  bool trailing_index_ = false;  // mdat before moov in something that cannot be repositioned
  Mp4BoxOrder box_order_;
  int64_t position_ = 0;

  // Destroyed from the last to the first: the decoder and the demuxer before the bytes they read.
  std::unique_ptr<AVIOContext, AvioFree> avio_;
  std::unique_ptr<AVFormatContext, FormatClose> format_;
  std::unique_ptr<AVCodecContext, CodecFree> codec_;
  std::unique_ptr<AVPacket, PacketFree> packet_;
  std::unique_ptr<AVFrame, FrameFree> frame_;
  int audio_index_ = -1;
  int probe_score_ = 0;
  bool draining_ = false;
  int idle_packets_ = 0;
  int64_t idle_position_ = -1;
  int64_t decode_errors_ = 0;
  int64_t frames_ = 0;
  std::vector<float> first_;  // decoded while opening, handed out first
};

int FfmpegSource::ReadBytes(void* self, uint8_t* buffer, int size) {
  auto& source = *static_cast<FfmpegSource*>(self);
  if (!source.io_status_.ok() || source.trailing_index_) return AVERROR(EIO);
  const std::span<std::byte> room(reinterpret_cast<std::byte*>(buffer), static_cast<size_t>(std::max(size, 0)));
  Result<size_t> count = source.stream_->Read(room);
  if (!count.ok()) {
    source.io_status_ = count.status();
    return AVERROR(EIO);
  }
  if (*count == 0) return AVERROR_EOF;
  source.position_ += static_cast<int64_t>(*count);
  if (!source.stream_->seekable() && !source.box_order_.Push(room.first(*count))) {
    source.trailing_index_ = true;
    return AVERROR(EIO);
  }
  return static_cast<int>(*count);
}

int64_t FfmpegSource::SeekBytes(void* self, int64_t offset, int whence) {
  auto& source = *static_cast<FfmpegSource*>(self);
  const int64_t size = static_cast<int64_t>(source.stream_->size().value_or(0));
  whence &= ~AVSEEK_FORCE;
  if (whence == AVSEEK_SIZE) return size;
  int64_t base = 0;
  if (whence == SEEK_CUR) base = source.position_;
  if (whence == SEEK_END) base = size;
  if (whence != SEEK_SET && whence != SEEK_CUR && whence != SEEK_END) return AVERROR(EINVAL);
  if (offset > INT64_MAX - base || base + offset < 0) return AVERROR(EINVAL);
  const Status status = source.stream_->Seek(static_cast<uint64_t>(base + offset));
  if (!status.ok()) {
    source.io_status_ = status;
    return AVERROR(EIO);
  }
  source.position_ = base + offset;
  return source.position_;
}

Status FfmpegSource::Failed(std::string_view what, int error) const {
  if (!io_status_.ok()) return io_status_;
  if (trailing_index_) {
    return {StatusCode::kInvalidAudio, fmt::format("{}: an MP4 whose index (moov) comes after its samples cannot be "
                                                   "read from a pipe; give the file by name, or "
                                                   "move the index with ffmpeg -i IN -c copy -movflags +faststart OUT",
                                                   name())};
  }
  std::string detail = error != 0 ? AvErrorText(error) : "";
  if (last_message_.text[0] != '\0') detail += (detail.empty() ? "" : "; ") + std::string(last_message_.text.data());
  return {StatusCode::kInvalidAudio,
          fmt::format("{}: {}{}{}{}; expected audio that FFmpeg decodes; check that the file plays, or "
                      "convert it to WAV",
                      name(), what, detail.empty() ? "" : " (", detail, detail.empty() ? "" : ")")};
}

Status FfmpegSource::Open() {
  PrepareLibraries();
  packet_.reset(av_packet_alloc());
  frame_.reset(av_frame_alloc());
  auto* buffer = static_cast<unsigned char*>(av_malloc(kAvioBytes));
  if (buffer != nullptr) {
    avio_.reset(avio_alloc_context(buffer, kAvioBytes, 0, this, &ReadBytes, nullptr,
                                   stream_->seekable() ? &SeekBytes : nullptr));
    if (avio_ == nullptr) av_free(buffer);
  }
  if (packet_ == nullptr || frame_ == nullptr || avio_ == nullptr) {
    return {StatusCode::kResourceExhausted, fmt::format("{}: no memory to open it; free some and try again", name())};
  }
  VOXRT_RETURN_IF_ERROR(OpenContainer());
  VOXRT_RETURN_IF_ERROR(FindParameters());
  VOXRT_RETURN_IF_ERROR(OpenDecoder());
  VOXRT_ASSIGN_OR_RETURN(const bool any, Decode(&first_));
  FillInfo();
  const bool claims_audio = info_.duration_s > 0.0;
  if (!any && (claims_audio || decode_errors_ > 0 || probe_score_ < kSureProbeScore)) {
    return Failed("no audio in it could be decoded", 0);
  }
  return {};
}

Status FfmpegSource::Probe(const AVInputFormat** format) {
  const int score = av_probe_input_buffer2(avio_.get(), format, "", nullptr, 0, kProbeBytes);
  probe_score_ = score;
  if (score < kMinProbeScore || *format == nullptr) {
    if (!io_status_.ok() || trailing_index_) return Failed("", 0);
    return {StatusCode::kInvalidAudio,
            fmt::format("{}: no known audio format found in it, expected WAV or what FFmpeg reads; give an "
                        "audio file, or --format, --rate and --channels for raw PCM",
                        name())};
  }
  if (!IsAllowed(*format)) {
    return {StatusCode::kInvalidAudio,
            fmt::format("{}: found the format {}, which is not read here, expected an audio or video "
                        "container; convert it to WAV",
                        name(), (*format)->name)};
  }
  return {};
}

Status FfmpegSource::OpenContainer() {
  const AVInputFormat* input = nullptr;
  VOXRT_RETURN_IF_ERROR(Probe(&input));
  const int error = OpenGuarded(input, avio_.get(), &last_message_, &format_);
  if (error < 0) return Failed(fmt::format("damaged or unsupported {} file", input->name), error);
  return {};
}

Status FfmpegSource::FindParameters() {
  audio_index_ = FindAudioStream();
  const bool streams_come_later = (format_->ctx_flags & AVFMTCTX_NOHEADER) != 0;
  const bool incomplete = audio_index_ >= 0 && format_->streams[audio_index_]->codecpar->sample_rate == 0;
  // Reading ahead costs latency on a live pipe: there the decoder itself finds out what the header lacks.
  if (audio_index_ < 0 ? streams_come_later : incomplete && stream_->seekable()) {
    const int error = avformat_find_stream_info(format_.get(), nullptr);
    if (error < 0 || !io_status_.ok()) return Failed("its streams cannot be read", error);
    audio_index_ = FindAudioStream();
  }
  if (audio_index_ >= 0) return {};
  if (!io_status_.ok() || trailing_index_) return Failed("", 0);
  return {StatusCode::kInvalidAudio,
          fmt::format("{}: a {} file with {} stream{} and no audio among them, expected audio; give a file "
                      "that has sound",
                      name(), format_->iformat->name, format_->nb_streams, format_->nb_streams == 1 ? "" : "s")};
}

int FfmpegSource::FindAudioStream() const {
  int found = -1;
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    const AVStream& stream = *format_->streams[i];
    if (stream.codecpar->codec_type != AVMEDIA_TYPE_AUDIO || avcodec_find_decoder(stream.codecpar->codec_id) == nullptr)
      continue;
    if ((stream.disposition & AV_DISPOSITION_DEFAULT) != 0) return static_cast<int>(i);
    if (found < 0) found = static_cast<int>(i);
  }
  return found;
}

Status FfmpegSource::OpenDecoder() {
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    format_->streams[i]->discard = static_cast<int>(i) == audio_index_ ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
  }
  const AVStream& stream = *format_->streams[audio_index_];
  const AVCodec* codec = avcodec_find_decoder(stream.codecpar->codec_id);
  codec_.reset(avcodec_alloc_context3(codec));
  if (codec_ == nullptr)
    return {StatusCode::kResourceExhausted, fmt::format("{}: no memory to open it; free some and try again", name())};
  codec_->opaque = &last_message_;
  codec_->thread_count = 1;
  codec_->max_samples = kMaxFrameSamples;
  codec_->pkt_timebase = stream.time_base;
  int error = avcodec_parameters_to_context(codec_.get(), stream.codecpar);
  if (error >= 0) error = avcodec_open2(codec_.get(), codec, nullptr);
  if (error < 0) return Failed(fmt::format("its {} audio cannot be decoded", codec->name), error);
  return {};
}

void FfmpegSource::FillInfo() {
  const AVStream& stream = *format_->streams[audio_index_];
  info_.container = format_->iformat->name;
  info_.codec = avcodec_get_name(stream.codecpar->codec_id);
  if (info_.rate == 0) info_.rate = codec_->sample_rate;
  if (info_.channels == 0) info_.channels = codec_->ch_layout.nb_channels;
  if (stream.duration != AV_NOPTS_VALUE && stream.duration > 0) {
    info_.duration_s = static_cast<double>(stream.duration) * av_q2d(stream.time_base);
  } else if (format_->duration != AV_NOPTS_VALUE && format_->duration > 0) {
    info_.duration_s = static_cast<double>(format_->duration) / AV_TIME_BASE;
  }
  // Without an index FFmpeg estimates; that is no promise.
  if (format_->duration_estimation_method == AVFMT_DURATION_FROM_STREAM) info_.declared_s = info_.duration_s;
}

Result<bool> FfmpegSource::Pull(std::vector<float>* mono) {
  if (!first_.empty()) {
    mono->insert(mono->end(), first_.begin(), first_.end());
    std::vector<float>().swap(first_);
    return true;
  }
  return Decode(mono);
}

Result<bool> FfmpegSource::Decode(std::vector<float>* mono) {
  for (;;) {
    const int error = avcodec_receive_frame(codec_.get(), frame_.get());
    if (error == 0) {
      VOXRT_ASSIGN_OR_RETURN(const bool appended, TakeFrame(mono));
      if (appended) return true;
    } else if (error == AVERROR_EOF) {
      return false;
    } else if (error == AVERROR(EAGAIN) && !draining_) {
      VOXRT_RETURN_IF_ERROR(FeedDecoder());
    } else {
      ++decode_errors_;
      if (draining_) return false;
      VOXRT_RETURN_IF_ERROR(FeedDecoder());
    }
  }
}

Status FfmpegSource::FeedDecoder() {
  for (;;) {
    const int error = av_read_frame(format_.get(), packet_.get());
    if (!io_status_.ok() || trailing_index_) return Failed("", 0);
    if (idle_position_ != position_) idle_packets_ = 0;
    idle_position_ = position_;
    const bool stuck = ++idle_packets_ > kMaxIdlePackets;
    if (error == AVERROR(EAGAIN) && !stuck) continue;
    if (error < 0 || stuck) {
      if (error != AVERROR_EOF || stuck) {
        ++decode_errors_;
        if (frames_ > 0) {  // else opening fails with a message of its own
          Log(LogLevel::kWarning, "{}: the input is damaged and ends early ({})", name(),
              stuck ? "no progress" : AvErrorText(error));
        }
      }
      av_packet_unref(packet_.get());
      draining_ = true;
      avcodec_send_packet(codec_.get(), nullptr);
      return {};
    }
    const bool ours = packet_->stream_index == audio_index_;
    const int sent = ours ? avcodec_send_packet(codec_.get(), packet_.get()) : 0;
    av_packet_unref(packet_.get());
    if (ours && sent < 0) ++decode_errors_;  // a damaged packet: what follows may be good
    if (ours && sent >= 0) return {};
  }
}

// False when the frame held no samples.
Result<bool> FfmpegSource::TakeFrame(std::vector<float>* mono) {
  const int samples = frame_->nb_samples, rate = frame_->sample_rate, channels = frame_->ch_layout.nb_channels;
  if (samples <= 0) {
    av_frame_unref(frame_.get());
    return false;
  }
  VOXRT_RETURN_IF_ERROR(CheckRateAndChannels(name(), rate, channels));
  if (frames_++ == 0) {
    info_.rate = rate;
    info_.channels = channels;
  }
  idle_packets_ = 0;
  VOXRT_RETURN_IF_ERROR(SetRate(rate));
  const bool known = AppendFrame(*frame_, mono);
  av_frame_unref(frame_.get());
  if (!known) return Failed("its samples have a type that is not read here", 0);
  return true;
}

}  // namespace

bool FfmpegBuiltIn() { return true; }

Result<std::unique_ptr<AudioSource>> OpenFfmpeg(std::unique_ptr<ByteStream> stream, const SourceOptions& options) {
  auto source = std::make_unique<FfmpegSource>(std::move(stream), options);
  VOXRT_RETURN_IF_ERROR(source->Open());
  return std::unique_ptr<AudioSource>(std::move(source));
}

}  // namespace voxrt::audio

#else

namespace voxrt::audio {

bool FfmpegBuiltIn() { return false; }

Result<std::unique_ptr<AudioSource>> OpenFfmpeg(std::unique_ptr<ByteStream> stream, const SourceOptions& /*options*/) {
  return Status(
      StatusCode::kInvalidAudio,
      fmt::format("{}: not a WAV file, and this build has no FFmpeg; convert it to WAV first", stream->name()));
}

}  // namespace voxrt::audio

#endif
