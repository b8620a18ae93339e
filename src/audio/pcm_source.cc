// Both sources read at most kBlockBytes at a time and decode whatever a read returned, so that a live pipe is never
// waited for longer than its writer takes.
#include "audio/pcm_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "audio/pcm.h"
#include "audio/queued_source.h"
#include "audio/wav_reader.h"

namespace voxrt::audio {
namespace {

constexpr size_t kBlockBytes = size_t{32} << 10;
// The header with everything before the samples (pictures, comments) may be this long.
constexpr size_t kMaxHeaderBytes = size_t{16} << 20;

// Of the whole frames in so many bytes.
double Duration(uint64_t bytes, SampleFormat format, int channels, int rate) {
  const uint64_t frames = bytes / static_cast<uint64_t>(BytesPerSample(format) * channels);
  return static_cast<double>(frames) / rate;
}

class RawSource final : public QueuedSource {
 public:
  RawSource(std::unique_ptr<ByteStream> stream, const SourceOptions& options)
      : QueuedSource(stream->name(), options.target_rate),
        stream_(std::move(stream)),
        decoder_(options.raw->format, options.raw->channels),
        block_(kBlockBytes) {
    info_ = {"raw", SampleFormatName(options.raw->format), options.raw->rate, options.raw->channels, -1.0, -1.0};
    if (const auto size = stream_->size()) {
      info_.duration_s = Duration(*size, options.raw->format, options.raw->channels, options.raw->rate);
    }
  }
  Status Start() { return SetRate(info_.rate); }

 protected:
  Result<bool> Pull(std::vector<float>* mono) override {
    VOXRT_ASSIGN_OR_RETURN(const size_t count, stream_->Read(block_));
    decoder_.Push(std::span(block_).first(count), mono);
    return count > 0;
  }

 private:
  std::unique_ptr<ByteStream> stream_;
  PcmDecoder decoder_;
  std::vector<std::byte> block_;  // [kBlockBytes]
};

class WavSource final : public QueuedSource {
 public:
  // `scout` has parsed the header of the same stream.
  WavSource(std::unique_ptr<ByteStream> stream, const SourceOptions& options, const WavParser& scout)
      : QueuedSource(stream->name(), options.target_rate),
        stream_(std::move(stream)),
        parser_(stream_->name()),
        block_(kBlockBytes) {
    const WavFormat& format = *scout.format();
    info_ = {"wav", std::string("pcm_") + SampleFormatName(format.samples), format.rate, format.channels, -1.0, -1.0};
    std::optional<uint64_t> bytes = scout.data_bytes();
    if (bytes.has_value()) info_.declared_s = Duration(*bytes, format.samples, format.channels, format.rate);
    if (const auto size = stream_->size(); size.has_value() && *size >= scout.data_offset()) {
      bytes = std::min(bytes.value_or(UINT64_MAX), *size - scout.data_offset());
    }
    if (bytes.has_value()) {
      info_.duration_s = Duration(*bytes, format.samples, format.channels, format.rate);
    }
  }
  Status Start() { return SetRate(info_.rate); }

 protected:
  Result<bool> Pull(std::vector<float>* mono) override {
    if (parser_.done()) return false;
    VOXRT_ASSIGN_OR_RETURN(const size_t count, stream_->Read(block_));
    if (count == 0) {
      VOXRT_RETURN_IF_ERROR(parser_.Finish());
      return false;
    }
    VOXRT_RETURN_IF_ERROR(parser_.Push(std::span(block_).first(count), mono));
    return true;
  }

 private:
  std::unique_ptr<ByteStream> stream_;
  WavParser parser_;
  std::vector<std::byte> block_;  // [kBlockBytes]
};

template <typename Source>
Result<std::unique_ptr<AudioSource>> Started(std::unique_ptr<Source> source) {
  VOXRT_RETURN_IF_ERROR(source->Start());
  return std::unique_ptr<AudioSource>(std::move(source));
}

}  // namespace

Result<std::unique_ptr<AudioSource>> OpenWav(std::unique_ptr<ByteStream>& stream, const SourceOptions& options,
                                             bool* foreign_codec) {
  *foreign_codec = false;
  WavParser scout(stream->name());
  std::vector<float> ignored;
  size_t parsed = 0;
  while (!scout.format().has_value()) {
    if (parsed > kMaxHeaderBytes) {
      return Status(StatusCode::kInvalidAudio,
                    fmt::format("{}: no samples within the first {} bytes of this WAV file; make it again "
                                "without the data before them",
                                stream->name(), kMaxHeaderBytes));
    }
    VOXRT_RETURN_IF_ERROR(stream->Fill(parsed + 1));
    const auto fresh = stream->ahead().subspan(parsed);
    Status status = fresh.empty() ? scout.Finish() : scout.Push(fresh, &ignored);
    *foreign_codec = scout.foreign_codec();
    if (!status.ok()) return status;
    parsed += fresh.size();
    ignored.clear();
  }
  return Started(std::make_unique<WavSource>(std::move(stream), options, scout));
}

Result<std::unique_ptr<AudioSource>> OpenRaw(std::unique_ptr<ByteStream> stream, const SourceOptions& options) {
  VOXRT_CHECK(options.raw.has_value());
  VOXRT_RETURN_IF_ERROR(CheckRateAndChannels(stream->name(), options.raw->rate, options.raw->channels));
  return Started(std::make_unique<RawSource>(std::move(stream), options));
}

}  // namespace voxrt::audio
