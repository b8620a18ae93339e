// The registry is a fixed array of slots that the signal handler may read at any moment: `end` and `changed` are
// written before `begin` is published and `begin` is cleared before the mapping goes away. The handler uses raw system
// calls only, so that it is async-signal-safe and invisible to the address and thread sanitizers.
#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace voxrt::base {

struct MappedFile::Slot {
  std::atomic<uintptr_t> begin{0};  // 0 = free, 1 = reserved
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> changed{false};
};

struct MappedFileRegistry {
  using Slot = MappedFile::Slot;

  static constexpr uintptr_t kFree = 0;
  static constexpr uintptr_t kReserved = 1;

  std::array<Slot, 256> slots;
  struct sigaction previous = {};
  uintptr_t page_bytes = 4096;
  std::once_flag once;

  Slot* Reserve() {
    for (Slot& slot : slots) {
      uintptr_t expected = kFree;
      if (slot.begin.compare_exchange_strong(expected, kReserved)) return &slot;
    }
    return nullptr;
  }

  void Install();
};

namespace {

constinit MappedFileRegistry registry;  // see the header

void PassOn(int signal_number, siginfo_t* info, void* context) {
  const struct sigaction& previous = registry.previous;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal_number, info, context);
    return;
  }
  const bool sent = info->si_code <= 0;  // by kill or raise, not by a fault
  if (previous.sa_handler == SIG_IGN && sent) return;
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal_number);
    return;
  }
  struct sigaction fatal = {};
  fatal.sa_handler = SIG_DFL;
  sigaction(signal_number, &fatal, nullptr);
  if (sent) raise(signal_number);  // a fault comes again by itself
}

void OnBusError(int signal_number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (MappedFileRegistry::Slot& slot : registry.slots) {
    const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin <= MappedFileRegistry::kReserved || address < begin) continue;
    const uintptr_t end = slot.end.load(std::memory_order_relaxed);
    if (address >= end) continue;
    const uintptr_t page = address & ~(registry.page_bytes - 1);
    const int64_t result =
        syscall(SYS_mmap, page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (result == -1) break;
    slot.changed.store(true, std::memory_order_release);
    errno = saved_errno;
    return;
  }
  errno = saved_errno;
  PassOn(signal_number, info, context);
}

Status ErrnoStatus(const std::string& path, const char* what) {
  const int error = errno;
  const bool absent = error == ENOENT || error == ENOTDIR;
  return Status(absent ? StatusCode::kNotFound : StatusCode::kIo,
                fmt::format("cannot {} {}: {}", what, path, std::strerror(error)));
}

// An open descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Status CheckRegular(mode_t mode, const std::string& path) {
  if (S_ISREG(mode)) return {};
  if (S_ISDIR(mode)) return {StatusCode::kIo, fmt::format("{} is a directory, expected a file", path)};
  const char* found = S_ISFIFO(mode) ? "pipe" : S_ISSOCK(mode) ? "socket" : "device";
  return {StatusCode::kIo, fmt::format("{} is a {}, expected a file; save its contents to one first", path, found)};
}

// Size of the regular file behind `fd`.
Result<size_t> RegularSize(int fd, const std::string& path) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return ErrnoStatus(path, "inspect");
  VOXRT_RETURN_IF_ERROR(CheckRegular(info.st_mode, path));
  return static_cast<size_t>(info.st_size);
}

}  // namespace

void MappedFileRegistry::Install() {
  std::call_once(once, [this] {
    page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous);
  });
}

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  registry.Install();
  // Not blocking: a pipe in a file's place must not hang the program.
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.get() < 0) return ErrnoStatus(path, "open");
  VOXRT_ASSIGN_OR_RETURN(const size_t size, RegularSize(descriptor.get(), path));
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = path;
  if (size == 0) return std::shared_ptr<const MappedFile>(std::move(file));

  file->slot_ = registry.Reserve();
  if (file->slot_ == nullptr) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("cannot map {}: {} files are mapped already", path, registry.slots.size()));
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus(path, "map");
  file->data_ = data;
  file->size_ = size;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  file->slot_->changed.store(false, std::memory_order_relaxed);
  file->slot_->end.store(begin + size, std::memory_order_relaxed);
  file->slot_->begin.store(begin, std::memory_order_release);
  return std::shared_ptr<const MappedFile>(std::move(file));
}

MappedFile::~MappedFile() {
  if (slot_ != nullptr) slot_->begin.store(MappedFileRegistry::kFree, std::memory_order_release);
  if (data_ != nullptr) munmap(data_, size_);
}

bool MappedFile::changed() const { return slot_ != nullptr && slot_->changed.load(std::memory_order_acquire); }

Status RefusePipe(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) != 0 || S_ISDIR(info.st_mode) ? Status() : CheckRegular(info.st_mode, path);
}

Result<std::string> ReadSmallFile(const std::string& path, size_t max_bytes) {
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.get() < 0) return ErrnoStatus(path, "open");
  VOXRT_ASSIGN_OR_RETURN(const size_t size, RegularSize(descriptor.get(), path));
  if (size > max_bytes) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{} has {} bytes, expected at most {}", path, size, max_bytes));
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = read(descriptor.get(), text.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(path, "read");
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace voxrt::base
