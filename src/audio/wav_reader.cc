// A state machine over header pieces of at most 40 bytes; everything longer is skipped or decoded as it passes.
#include "audio/wav_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace voxrt::audio {
namespace {

constexpr size_t kRiffBytes = 12;
constexpr size_t kChunkBytes = 8;
constexpr size_t kFormatBytes = 16;            // least size of a fmt chunk
constexpr size_t kExtensibleFormatBytes = 40;  // with the SubFormat GUID
constexpr size_t kSize64Bytes = 16;            // of ds64: RIFF size, data size
constexpr size_t kPadProbeBytes = 5;           // an optional pad byte and the next chunk's name

enum WaveTag : uint32_t { kPcm = 1, kFloat = 3, kAlawTag = 6, kMulawTag = 7, kExtensible = 0xFFFE };

// Everything of a SubFormat GUID but the tag in its first two bytes.
constexpr std::string_view kGuidTail("\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71", 14);
constexpr std::string_view kAmbisonicGuidTail("\x00\x00\x21\x07\xD3\x11\x86\x44\xC8\xC1\xCA\x00\x00\x00", 14);

// Names by which the position of the next chunk is recognised when a pad byte may be missing.
constexpr std::string_view kKnownChunks[] = {"fmt ", "data", "fact", "LIST", "JUNK", "junk", "PAD ", "FLLR",
                                             "cue ", "plst", "smpl", "inst", "acid", "bext", "iXML", "axml",
                                             "chna", "cart", "PEAK", "id3 ", "ID3 ", "ds64", "_PMX", "umid",
                                             "DISP", "afsp", "strc", "levl", "link", "note"};

std::string_view Text(const std::byte* bytes, size_t count) { return {reinterpret_cast<const char*>(bytes), count}; }

bool IsKnownChunk(std::string_view name) {
  return std::find(std::begin(kKnownChunks), std::end(kKnownChunks), name) != std::end(kKnownChunks);
}

// Sizes that writers leave behind when they cannot seek back: 0xFFFFFFFF and 0x7FFFFFFF, also reduced by a header or
// rounded down.
bool IsUnfinishedSize(uint64_t size) {
  return (size >= 0x7FFF0000u && size <= 0x80000000u) || (size >= 0xFFFF0000u && size <= 0xFFFFFFFFu);
}

const char* TagName(uint32_t tag) {
  switch (tag) {
    case 0x0002:
      return "Microsoft ADPCM";
    case 0x0011:
      return "IMA ADPCM";
    case 0x0031:
      return "GSM 6.10";
    case 0x0050:
      return "MPEG";
    case 0x0055:
      return "MP3";
    case 0x00FF:
      return "AAC";
    case 0x0161:
      return "WMA";
    case 0x2000:
      return "AC-3";
    default:
      return "unknown";
  }
}

// Bytes that one sample occupies. Whole sizes speak for themselves; 12, 20 or 24 bits may lie in a larger container,
// which the frame size tells.
uint32_t SampleBytes(uint32_t bits, uint32_t frame_bytes, uint32_t channels) {
  const uint32_t least = (bits + 7) / 8;
  if (bits == 8 || bits == 16 || bits == 32 || bits == 64) return least;
  const bool frame_is_whole = frame_bytes % channels == 0 && frame_bytes / channels >= std::max(least, 1u);
  return frame_is_whole ? frame_bytes / channels : least;
}

// Bytes one sample occupies -> format; the bits that are valid in it do not matter, they are left-justified.
std::optional<SampleFormat> FormatFor(uint32_t tag, uint32_t sample_bytes) {
  switch (tag) {
    case kPcm:
      if (sample_bytes == 1) return SampleFormat::kU8;
      if (sample_bytes == 2) return SampleFormat::kS16le;
      if (sample_bytes == 3) return SampleFormat::kS24le;
      if (sample_bytes == 4) return SampleFormat::kS32le;
      return std::nullopt;
    case kFloat:
      if (sample_bytes == 4) return SampleFormat::kF32le;
      if (sample_bytes == 8) return SampleFormat::kF64le;
      return std::nullopt;
    case kAlawTag:
      return sample_bytes == 1 ? std::optional(SampleFormat::kAlaw) : std::nullopt;
    case kMulawTag:
      return sample_bytes == 1 ? std::optional(SampleFormat::kMulaw) : std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

bool LooksLikeWav(std::span<const std::byte> head) {
  if (head.size() < kRiffBytes || Text(head.data() + 8, 4) != "WAVE") return false;
  const std::string_view id = Text(head.data(), 4);
  return id == "RIFF" || id == "RF64" || id == "BW64";
}

WavParser::WavParser(std::string name) : name_(std::move(name)) {}

uint32_t WavParser::U16(size_t at) const {
  return std::to_integer<uint32_t>(head_[at]) | std::to_integer<uint32_t>(head_[at + 1]) << 8;
}
uint32_t WavParser::U32(size_t at) const { return U16(at) | U16(at + 2) << 16; }
uint64_t WavParser::U64(size_t at) const { return static_cast<uint64_t>(U32(at + 4)) << 32 | U32(at); }

bool WavParser::Collect(std::span<const std::byte>* bytes, size_t count) {
  const size_t take = std::min(bytes->size(), count - head_size_);
  std::copy_n(bytes->begin(), take, head_.begin() + static_cast<std::ptrdiff_t>(head_size_));
  head_size_ += take;
  position_ += take;
  *bytes = bytes->subspan(take);
  return head_size_ == count;
}

Status WavParser::Push(std::span<const std::byte> bytes, std::vector<float>* mono) {
  while (!bytes.empty() && step_ != Step::kDone) {
    switch (step_) {
      case Step::kRiff:
        if (Collect(&bytes, kRiffBytes)) VOXRT_RETURN_IF_ERROR(TakeRiff());
        break;
      case Step::kChunk:
        if (Collect(&bytes, kChunkBytes)) VOXRT_RETURN_IF_ERROR(TakeChunk());
        break;
      case Step::kFormat:
        if (Collect(&bytes, std::min<size_t>(chunk_size_, kExtensibleFormatBytes))) VOXRT_RETURN_IF_ERROR(TakeFormat());
        break;
      case Step::kSize64:
        if (Collect(&bytes, kSize64Bytes)) TakeSize64();
        break;
      case Step::kPad:
        if (Collect(&bytes, kPadProbeBytes)) TakePad();
        break;
      case Step::kSkip: {
        const size_t count = static_cast<size_t>(std::min<uint64_t>(bytes.size(), remaining_));
        bytes = bytes.subspan(count);
        position_ += count;
        Skip(remaining_ - count, odd_chunk_);
        break;
      }
      case Step::kData:
        TakeData(&bytes, mono);
        break;
      case Step::kDone:
        break;
    }
  }
  return {};
}

Status WavParser::TakeRiff() {
  if (!LooksLikeWav(std::span(head_).first(kRiffBytes))) {
    return {StatusCode::kInvalidAudio,
            fmt::format("{}: not a WAV file: it does not begin with RIFF....WAVE; give an audio file", name_)};
  }
  riff_size_ = U32(4);
  head_size_ = 0;
  step_ = Step::kChunk;
  return {};
}

Status WavParser::TakeChunk() {
  const std::string name(Text(head_.data(), 4));
  chunk_size_ = U32(4);
  odd_chunk_ = chunk_size_ % 2 != 0;
  head_size_ = 0;
  if (name == "data") return BeginData(static_cast<uint32_t>(chunk_size_));
  if (name == "fmt ") {
    if (chunk_size_ < kFormatBytes) {
      return {StatusCode::kInvalidAudio,
              fmt::format("{}: the fmt chunk has {} bytes, expected {}, 18 or {}; the header is damaged, "
                          "make the file again",
                          name_, chunk_size_, kFormatBytes, kExtensibleFormatBytes)};
    }
    step_ = Step::kFormat;
  } else if (name == "ds64" && chunk_size_ >= kSize64Bytes) {
    step_ = Step::kSize64;
  } else {
    Skip(chunk_size_, odd_chunk_);
  }
  return {};
}

Status WavParser::TakeFormat() {
  uint32_t tag = U16(0);
  const uint32_t channels = U16(2), rate = U32(4), frame_bytes = U16(12), bits = U16(14);
  const bool extensible = tag == kExtensible;
  if (extensible) {
    if (head_size_ < kExtensibleFormatBytes) {
      return {StatusCode::kInvalidAudio,
              fmt::format("{}: WAVE_FORMAT_EXTENSIBLE with a fmt chunk of {} bytes, expected {} with a "
                          "SubFormat; the header is damaged, make the file again",
                          name_, head_size_, kExtensibleFormatBytes)};
    }
    const std::string_view tail = Text(head_.data() + 26, 14);
    tag = tail == kGuidTail || tail == kAmbisonicGuidTail ? U16(24) : 0;
  }
  if (rate > static_cast<uint32_t>(kMaxRate) || rate < static_cast<uint32_t>(kMinRate) || channels == 0 ||
      channels > kMaxChannels) {
    return CheckRateAndChannels(name_, rate, channels);
  }
  const uint32_t sample_bytes = SampleBytes(bits, frame_bytes, channels);
  const std::optional<SampleFormat> samples = FormatFor(tag, sample_bytes);
  if (!samples.has_value() || bits > sample_bytes * 8) {
    foreign_codec_ = tag != kPcm && tag != kFloat;
    return {StatusCode::kInvalidAudio,
            fmt::format("{}: WAV codec {:#06x} ({}) with {} bits, expected PCM of 8, 16, 24 or 32 bits, float of 32 or "
                        "64, mu-law or "
                        "A-law; convert it with ffmpeg -i IN -c:a pcm_s16le OUT.wav",
                        name_, U16(0), extensible && tag == 0 ? "unknown SubFormat" : TagName(tag), bits)};
  }
  pending_format_ = WavFormat{*samples, static_cast<int>(rate), static_cast<int>(channels)};
  Skip(chunk_size_ - head_size_, odd_chunk_);
  return {};
}

void WavParser::TakeSize64() {
  size64_ = U64(8);
  Skip(chunk_size_ - kSize64Bytes, odd_chunk_);
}

// Goes past the rest of a chunk and its pad byte.
void WavParser::Skip(uint64_t count, bool odd) {
  head_size_ = 0;
  remaining_ = count;
  step_ = count > 0 ? Step::kSkip : odd ? Step::kPad : Step::kChunk;
}

// An odd chunk has a pad byte unless its writer forgot it: then the next chunk's name stands one byte earlier.
void WavParser::TakePad() {
  const bool here = IsKnownChunk(Text(head_.data(), 4)) && !IsKnownChunk(Text(head_.data() + 1, 4));
  if (!here) {
    std::copy(head_.begin() + 1, head_.begin() + kPadProbeBytes, head_.begin());
    head_size_ = kPadProbeBytes - 1;
  }
  step_ = Step::kChunk;
}

Status WavParser::BeginData(uint32_t size) {
  if (!pending_format_.has_value()) {
    return {
        StatusCode::kInvalidAudio,
        fmt::format("{}: the data chunk comes before the fmt chunk, expected fmt first; make the file again", name_)};
  }
  format_ = pending_format_;
  decoder_.emplace(format_->samples, format_->channels);
  data_offset_ = position_;
  uint64_t known = size;
  if (size == 0xFFFFFFFFu && size64_ != 0) {
    known = size64_;
  } else if (IsUnfinishedSize(size)) {
    known = 0;
  } else if (size == 0 && riff_size_ > position_ - kChunkBytes && !IsUnfinishedSize(riff_size_)) {
    // A finished file (its whole size is set and other chunks follow) that holds no samples.
    data_bytes_ = 0;
    step_ = Step::kDone;
    return {};
  }
  if (known != 0) data_bytes_ = known;
  remaining_ = known != 0 ? known : UINT64_MAX;
  step_ = Step::kData;
  return {};
}

void WavParser::TakeData(std::span<const std::byte>* bytes, std::vector<float>* mono) {
  const size_t count = static_cast<size_t>(std::min<uint64_t>(bytes->size(), remaining_));
  decoder_->Push(bytes->first(count), mono);
  *bytes = bytes->subspan(count);
  position_ += count;
  if (remaining_ != UINT64_MAX) remaining_ -= count;
  if (remaining_ == 0) step_ = Step::kDone;
}

Status WavParser::Finish() {
  if (step_ == Step::kData || step_ == Step::kDone) return {};
  return {StatusCode::kInvalidAudio,
          fmt::format("{}: the WAV file ends after {} bytes inside its header, expected a data chunk{}; it is cut off, "
                      "make or copy it "
                      "again",
                      name_, position_, pending_format_.has_value() ? "" : " and a fmt chunk")};
}

}  // namespace voxrt::audio
