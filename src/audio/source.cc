// Opening inputs: by name, by reader, by descriptor, and choosing who decodes them. Only the first bytes decide, never
// a file name. WAV of PCM, float and G.711 always goes through our own reader; everything else to FFmpeg's libraries
// where they are built in.
#include "audio/source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "audio/byte_stream.h"
#include "audio/ffmpeg_source.h"
#include "audio/pcm_source.h"
#include "audio/sniff.h"
#include "audio/wav_reader.h"

namespace voxrt::audio {
namespace {

constexpr int kPollMs = 100;
constexpr size_t kWavHeadBytes = 12;
constexpr size_t kSniffBytes = 512;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

std::string ErrorText(int error) { return std::generic_category().message(error); }

// Names are outside data: a message stays one line whatever they hold.
std::string Printable(const std::string& name) {
  std::string shown = name;
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return shown;
}

Status OpenFailed(const std::string& shown, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return {StatusCode::kNotFound, fmt::format("{}: no such file; check the name", shown)};
    case EACCES:
    case EPERM:
      return {StatusCode::kIo, fmt::format("{}: no permission to read it; check its access rights", shown)};
    default:
      return {StatusCode::kIo, fmt::format("{}: cannot be opened: {}", shown, ErrorText(error))};
  }
}

Status NotAudio(const std::string& name, std::string_view found) {
  return {StatusCode::kInvalidAudio,
          fmt::format("{}: found {}, expected an audio file; give an audio file, or --format, --rate "
                      "and --channels for raw PCM",
                      name, found)};
}

Result<std::unique_ptr<AudioSource>> OpenStream(std::unique_ptr<ByteStream> stream, const SourceOptions& options) {
  if (options.raw.has_value()) return OpenRaw(std::move(stream), options);
  VOXRT_RETURN_IF_ERROR(stream->Fill(kWavHeadBytes));
  if (stream->ahead().empty()) {
    return Status(StatusCode::kInvalidAudio,
                  fmt::format("{}: empty, 0 bytes; expected an audio file; record or copy it again", stream->name()));
  }
  if (LooksLikeWav(stream->ahead())) {
    bool foreign_codec = false;
    auto source = OpenWav(stream, options, &foreign_codec);
    if (!foreign_codec || !FfmpegBuiltIn()) return source;
    return OpenFfmpeg(std::move(stream), options);
  }
  VOXRT_RETURN_IF_ERROR(stream->Fill(kSniffBytes));
  if (const auto found = SniffNotAudio(stream->ahead(), stream->at_end())) return NotAudio(stream->name(), *found);
  if (!FfmpegBuiltIn()) {
    return NotAudio(stream->name(),
                    "something other than WAV, the only container this build reads (made without FFmpeg)");
  }
  return OpenFfmpeg(std::move(stream), options);
}

}  // namespace

ByteReader DescriptorReader(int fd, const std::atomic<bool>* cancel) {
  return [fd, cancel](std::span<std::byte> buffer) -> Result<size_t> {
    for (;;) {
      if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
        return Status(StatusCode::kCancelled, "input cancelled");
      pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
      const int ready = poll(&wait, 1, cancel != nullptr ? kPollMs : -1);
      if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
      if (ready < 0) return Status(StatusCode::kIo, fmt::format("waiting for input failed: {}", ErrorText(errno)));
      const ssize_t count = read(fd, buffer.data(), buffer.size());
      if (count >= 0) return static_cast<size_t>(count);
      if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
        return Status(StatusCode::kIo, fmt::format("reading input failed: {}", ErrorText(errno)));
      }
    }
  };
}

Result<std::unique_ptr<AudioSource>> OpenFile(const std::string& path, const SourceOptions& options) {
  const std::string shown = Printable(path);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return OpenFailed(shown, errno);
  const auto file = std::make_shared<Descriptor>(fd);
  struct stat about {};
  if (fstat(fd, &about) != 0) return OpenFailed(shown, errno);
  if (S_ISDIR(about.st_mode)) {
    return Status(StatusCode::kInvalidAudio,
                  fmt::format("{}: is a directory, expected an audio file; name the files in it", shown));
  }
  ByteReader reader = [file, read = DescriptorReader(fd, nullptr)](std::span<std::byte> buffer) {
    return read(buffer);
  };
  if (!S_ISREG(about.st_mode)) return OpenReader(std::move(reader), shown, options);
  auto seek = [file, shown](uint64_t position) -> Status {
    if (lseek(file->fd(), static_cast<off_t>(position), SEEK_SET) >= 0) return {};
    return {StatusCode::kIo, fmt::format("{}: cannot go to byte {}: {}", shown, position, ErrorText(errno))};
  };
  return OpenStream(
      std::make_unique<ByteStream>(std::move(reader), shown, std::move(seek), static_cast<uint64_t>(about.st_size)),
      options);
}

Result<std::unique_ptr<AudioSource>> OpenReader(ByteReader reader, const std::string& name,
                                                const SourceOptions& options) {
  return OpenStream(std::make_unique<ByteStream>(std::move(reader), Printable(name)), options);
}

}  // namespace voxrt::audio
