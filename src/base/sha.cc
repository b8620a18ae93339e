#include "base/sha.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace voxrt::base {
namespace {

constexpr size_t kBlock = 64;

alignas(16) constexpr std::array<uint32_t, 64> kRound256 = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t LoadBigEndian(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) << 24 | static_cast<uint32_t>(p[1]) << 16 | static_cast<uint32_t>(p[2]) << 8 |
         p[3];
}

void Compress256Plain(uint32_t* state, const uint8_t* data, size_t blocks) {
  for (; blocks > 0; --blocks, data += kBlock) {
    std::array<uint32_t, 64> w;
    for (size_t i = 0; i < 16; ++i) w[i] = LoadBigEndian(data + 4 * i);
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    std::array<uint32_t, 8> v;
    std::copy_n(state, 8, v.begin());
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25);
      const uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + kRound256[i] + w[i];
      const uint32_t s0 = std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22);
      const uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
    }
    for (size_t i = 0; i < 8; ++i) state[i] += v[i];
  }
}

#if defined(__x86_64__)
bool HasShaInstructions() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (b & (1u << 29)) != 0 && __builtin_cpu_supports("sse4.1") != 0 && __builtin_cpu_supports("ssse3") != 0;
}

// The instructions keep the state as (a b e f) and (c d g h) and do two rounds each; messages are scheduled four words
// at a time.
__attribute__((target("sha,sse4.1,ssse3"))) void Compress256Sha(uint32_t* state, const uint8_t* data, size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(state)), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(abcd, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, abcd, 0xf0);
  for (; blocks > 0; --blocks, data += kBlock) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), swap);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m128i now = w[i & 3];
      __m128i sum = _mm_add_epi32(now, _mm_load_si128(reinterpret_cast<const __m128i*>(kRound256.data()) + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      sum = _mm_shuffle_epi32(sum, 0x0e);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, sum);
      if (i < 12) {
        // w[i + 4] from w[i], w[i + 1], w[i + 2] and w[i + 3].
        const __m128i next = _mm_sha256msg1_epu32(now, w[(i + 1) & 3]);
        const __m128i seven = _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4);
        w[i & 3] = _mm_sha256msg2_epu32(_mm_add_epi32(next, seven), w[(i + 3) & 3]);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

void Compress256(uint32_t* state, const uint8_t* data, size_t blocks) {
#if defined(__x86_64__)
  static const bool has_sha = HasShaInstructions();
  if (has_sha) {
    Compress256Sha(state, data, blocks);
    return;
  }
#endif
  Compress256Plain(state, data, blocks);
}

void Compress1(uint32_t* state, const uint8_t* data, size_t blocks) {
  for (; blocks > 0; --blocks, data += kBlock) {
    std::array<uint32_t, 80> w;
    for (size_t i = 0; i < 16; ++i) w[i] = LoadBigEndian(data + 4 * i);
    for (size_t i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    std::array<uint32_t, 5> v;
    std::copy_n(state, 5, v.begin());
    for (size_t i = 0; i < 80; ++i) {
      uint32_t f = 0;
      uint32_t k = 0;
      if (i < 20) {
        f = (v[1] & v[2]) | (~v[1] & v[3]);
        k = 0x5a827999;
      } else if (i < 40) {
        f = v[1] ^ v[2] ^ v[3];
        k = 0x6ed9eba1;
      } else if (i < 60) {
        f = (v[1] & v[2]) | (v[1] & v[3]) | (v[2] & v[3]);
        k = 0x8f1bbcdc;
      } else {
        f = v[1] ^ v[2] ^ v[3];
        k = 0xca62c1d6;
      }
      const uint32_t t = std::rotl(v[0], 5) + f + v[4] + k + w[i];
      v = {t, v[0], std::rotl(v[1], 30), v[2], v[3]};
    }
    for (size_t i = 0; i < 5; ++i) state[i] += v[i];
  }
}

// Buffers up to a block, hands whole blocks on without copying.
template <typename Compress>
void Feed(std::span<const std::byte> bytes, uint8_t* block, size_t* filled, Compress compress) {
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  if (*filled > 0) {
    const size_t take = std::min(left, kBlock - *filled);
    if (take > 0) std::memcpy(block + *filled, p, take);
    *filled += take;
    p += take;
    left -= take;
    if (*filled < kBlock) return;
    compress(block, size_t{1});
    *filled = 0;
  }
  compress(p, left / kBlock);
  *filled = left % kBlock;
  if (*filled > 0) std::memcpy(block, p + left - *filled, *filled);
}

// The closing 1 bit, zeros and the length in bits, big-endian.
template <typename Compress>
void Pad(uint8_t* block, size_t filled, uint64_t total, Compress compress) {
  block[filled++] = 0x80;
  if (filled > kBlock - 8) {
    std::memset(block + filled, 0, kBlock - filled);
    compress(block, size_t{1});
    filled = 0;
  }
  std::memset(block + filled, 0, kBlock - 8 - filled);
  for (size_t i = 0; i < 8; ++i) block[kBlock - 1 - i] = static_cast<uint8_t>(total * 8 >> (8 * i));
  compress(block, size_t{1});
}

std::string Hex(std::span<const uint32_t> words) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint32_t word : words) {
    for (int shift = 28; shift >= 0; shift -= 4) out += kDigits[(word >> shift) & 15u];
  }
  return out;
}

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::Update(std::span<const std::byte> bytes) {
  total_ += bytes.size();
  Feed(bytes, block_.data(), &filled_,
       [&](const uint8_t* data, size_t blocks) { Compress256(state_.data(), data, blocks); });
}

std::string Sha256::FinishHex() {
  Pad(block_.data(), filled_, total_,
      [&](const uint8_t* data, size_t blocks) { Compress256(state_.data(), data, blocks); });
  return Hex(state_);
}

std::string Sha256Hex(std::span<const std::byte> bytes) {
  Sha256 sha;
  sha.Update(bytes);
  return sha.FinishHex();
}

GitBlobSha1::GitBlobSha1(uint64_t size) : state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0} {
  const std::string head = "blob " + std::to_string(size);
  Update(std::as_bytes(std::span(head.c_str(), head.size() + 1)));
}

void GitBlobSha1::Update(std::span<const std::byte> bytes) {
  total_ += bytes.size();
  Feed(bytes, block_.data(), &filled_,
       [&](const uint8_t* data, size_t blocks) { Compress1(state_.data(), data, blocks); });
}

std::string GitBlobSha1::FinishHex() {
  Pad(block_.data(), filled_, total_,
      [&](const uint8_t* data, size_t blocks) { Compress1(state_.data(), data, blocks); });
  return Hex(state_);
}

}  // namespace voxrt::base
