// SHA-256 and SHA-1, for integrity only: hashes of model files (hub, artifacts). SHA-256 uses the CPU's instructions
// where x86 has them, about 2 GB/s instead of 0.4, which decides whether hashing 9 GB is felt.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace voxrt::base {

class Sha256 {
 public:
  Sha256();
  void Update(std::span<const std::byte> bytes);
  // Lower-case hexadecimal, 64 characters. Nothing may follow.
  std::string FinishHex();

 private:
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> block_{};
  size_t filled_ = 0;
  uint64_t total_ = 0;
};

std::string Sha256Hex(std::span<const std::byte> bytes);

// The hash by which git (and the hub, for small files) names a file's contents: SHA-1 of "blob <size>\0" and the bytes.
class GitBlobSha1 {
 public:
  explicit GitBlobSha1(uint64_t size);
  void Update(std::span<const std::byte> bytes);
  std::string FinishHex();  // 40 characters

 private:
  std::array<uint32_t, 5> state_;
  std::array<uint8_t, 64> block_{};
  size_t filled_ = 0;
  uint64_t total_ = 0;
};

}  // namespace voxrt::base
