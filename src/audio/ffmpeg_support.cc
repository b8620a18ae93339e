// Limits for hostile input live here: the demuxer list, no opening of anything else, audio decoders only, bounded
// allocations.
#ifdef VOXRT_HAVE_FFMPEG

#include "audio/ffmpeg_support.h"

extern "C" {
#include <libavutil/channel_layout.h>
#include <libavutil/dict.h>
#include <libavutil/log.h>
}

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>

#include "audio/pcm.h"

namespace voxrt::audio {
namespace {

// Containers of recorded audio and video that are self-contained. Not here, on purpose: everything that refers to other
// files (hls, dash, concat, image2, sdp, rtsp), devices, and headerless formats that accept any bytes.
constexpr std::string_view kDemuxers[] = {
    "aac",      "ac3", "aiff", "amr",    "amrnb", "amrwb", "ape",    "asf",        "au",  "avi",
    "caf",      "dsf", "dts",  "dtshd",  "eac3",  "flac",  "flv",    "gsm",        "iff", "loas",
    "matroska", "mov", "mp3",  "mpc",    "mpc8",  "mpeg",  "mpegts", "nistsphere", "ogg", "oma",
    "rm",       "sox", "tak",  "truehd", "tta",   "voc",   "w64",    "wav",        "wv",  "xwma"};

constexpr int64_t kStreamInfoBytes = int64_t{1} << 20;  // to find the streams' parameters where the header lacks them
constexpr int64_t kStreamInfoUs = 2'000'000;
// One allocation: an index of 2.8 million packets fits, 16 hours of AAC at 48 kHz. With the number of streams it bounds
// what an MP4 of a few kilobytes can make the demuxer allocate, which builds an index per stream from counts that the
// header merely claims.
constexpr size_t kMaxAllocationBytes = size_t{64} << 20;
constexpr int kMaxStreams = 100;
constexpr int kMaxMp4Streams = 16;

void CaptureLog(void* context, int level, const char* format, va_list arguments) {
  if (context == nullptr || level > AV_LOG_ERROR) return;
  const AVClass* about = *static_cast<const AVClass**>(context);
  if (about == nullptr || about->class_name == nullptr) return;
  void* opaque = nullptr;
  if (std::strcmp(about->class_name, "AVFormatContext") == 0) opaque = static_cast<AVFormatContext*>(context)->opaque;
  if (std::strcmp(about->class_name, "AVCodecContext") == 0) opaque = static_cast<AVCodecContext*>(context)->opaque;
  if (opaque == nullptr) return;
  auto& text = static_cast<LastMessage*>(opaque)->text;
  std::vsnprintf(text.data(), text.size(), format, arguments);
  for (char& c : text) {
    if (c == '\n') c = '\0';
    if (c != '\0' && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)) c = '?';
  }
}

template <size_t N>
std::string Join(const std::string_view (&names)[N]) {
  std::string list;
  for (std::string_view name : names) (list += name) += ',';
  list.pop_back();
  return list;
}

std::string AudioDecoders() {
  std::string list;
  void* position = nullptr;
  while (const AVCodec* codec = av_codec_iterate(&position)) {
    if (codec->type == AVMEDIA_TYPE_AUDIO && av_codec_is_decoder(codec) != 0) (list += codec->name) += ',';
  }
  if (!list.empty()) list.pop_back();
  return list;
}

int RefuseToOpen(AVFormatContext* /*context*/, AVIOContext** /*io*/, const char* /*url*/, int /*flags*/,
                 AVDictionary** /*options*/) {
  return AVERROR(EACCES);
}

// T: what a plane holds. scale maps to -1 .. 1; offset is subtracted first (unsigned samples).
template <typename T>
void AverageFrame(const AVFrame& frame, bool planar, double scale, double offset, std::vector<float>* mono) {
  const int channels = frame.ch_layout.nb_channels;
  const size_t at = mono->size();
  mono->resize(at + static_cast<size_t>(frame.nb_samples));
  for (int i = 0; i < frame.nb_samples; ++i) {
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c) {
      const uint8_t* plane = frame.extended_data[planar ? c : 0];
      T value;
      std::memcpy(&value, plane + sizeof(T) * static_cast<size_t>(planar ? i : i * channels + c), sizeof(T));
      sum += CleanSample((static_cast<double>(value) - offset) * scale);
    }
    (*mono)[at + static_cast<size_t>(i)] = channels == 1 ? sum : sum / static_cast<float>(channels);
  }
}

}  // namespace

void PrepareLibraries() {
  static std::once_flag once;
  std::call_once(once, [] {
    av_log_set_callback(CaptureLog);
    av_max_alloc(kMaxAllocationBytes);
  });
}

std::string AvErrorText(int error) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(error, text.data(), text.size());
  return text.data();
}

// A demuxer's name is a list: "mov,mp4,m4a,3gp,3g2,mj2".
bool IsAllowed(const AVInputFormat* format) {
  std::string_view names = format->name;
  while (!names.empty()) {
    const std::string_view one = names.substr(0, names.find(','));
    if (std::find(std::begin(kDemuxers), std::end(kDemuxers), one) != std::end(kDemuxers)) return true;
    names.remove_prefix(std::min(names.size(), one.size() + 1));
  }
  return false;
}

int OpenGuarded(const AVInputFormat* input, AVIOContext* io, LastMessage* message,
                std::unique_ptr<AVFormatContext, FormatClose>* context) {
  AVFormatContext* opened = avformat_alloc_context();
  if (opened == nullptr) return AVERROR(ENOMEM);
  opened->pb = io;
  opened->flags |= AVFMT_FLAG_CUSTOM_IO;
  opened->io_open = &RefuseToOpen;
  opened->opaque = message;
  opened->probesize = kStreamInfoBytes;
  opened->max_analyze_duration = kStreamInfoUs;
  const bool mp4 = std::string_view(input->name).substr(0, 3) == "mov";
  AVDictionary* options = nullptr;
  av_dict_set(&options, "protocol_whitelist", "none", 0);
  av_dict_set(&options, "format_whitelist", Join(kDemuxers).c_str(), 0);
  av_dict_set(&options, "codec_whitelist", AudioDecoders().c_str(), 0);
  av_dict_set_int(&options, "max_streams", mp4 ? kMaxMp4Streams : kMaxStreams, 0);
  const int error = avformat_open_input(&opened, "", input, &options);  // frees the context when it fails
  av_dict_free(&options);
  if (error >= 0) context->reset(opened);
  return error;
}

bool AppendFrame(const AVFrame& frame, std::vector<float>* mono) {
  const auto format = static_cast<AVSampleFormat>(frame.format);
  const bool planar = av_sample_fmt_is_planar(format) != 0;
  switch (av_get_packed_sample_fmt(format)) {
    case AV_SAMPLE_FMT_U8:
      AverageFrame<uint8_t>(frame, planar, 0x1p-7, 128.0, mono);
      return true;
    case AV_SAMPLE_FMT_S16:
      AverageFrame<int16_t>(frame, planar, 0x1p-15, 0.0, mono);
      return true;
    case AV_SAMPLE_FMT_S32:
      AverageFrame<int32_t>(frame, planar, 0x1p-31, 0.0, mono);
      return true;
    case AV_SAMPLE_FMT_S64:
      AverageFrame<int64_t>(frame, planar, 0x1p-63, 0.0, mono);
      return true;
    case AV_SAMPLE_FMT_FLT:
      AverageFrame<float>(frame, planar, 1.0, 0.0, mono);
      return true;
    case AV_SAMPLE_FMT_DBL:
      AverageFrame<double>(frame, planar, 1.0, 0.0, mono);
      return true;
    default:
      return false;
  }
}

}  // namespace voxrt::audio

#endif
