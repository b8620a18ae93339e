// The searches. Design note.
//
// Every inner loop runs over vectors of 8 floats (compiler vector types, so one source serves SSE, AVX2 and NEON),
// accumulates in 8 lanes per block of 128 values and adds the lanes in one fixed tree. This is also numpy's order,
// which makes groups up to 128 comparable with the reference bit for bit. Contraction into fused multiply-adds is off
// for this file (CMakeLists.txt), otherwise the result would depend on the machine that exports.
//
// The refit alternates "codes for these parameters" and "least-squares parameters for these codes". It only finds the
// nearest local optimum, therefore it starts from several shrunk ranges: clipping the one or two largest values buys
// resolution for all others. With symmetric codes -8..7 it also tries both signs of the scale.
#include "quant/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "quant/dtype.h"
#include "quant/vector.h"

namespace voxrt::quant {
namespace {

using namespace vector;  // NOLINT(google-build-using-namespace): lane arithmetic is what this file is about

constexpr int64_t kBlock = 128;      // values summed in fp32 lanes before the sum goes to double
constexpr float kSmallest = 1e-30f;  // below it a scale would leave the normal range of fp32 products
constexpr float kReferenceFloor = 0x1p-23f;
constexpr int kReferenceRounds = 20;
constexpr int kRefitRounds = 3;  // symmetric; a regression line needs one more
constexpr int kAffineRounds = 4;

struct Range {
  float low;
  float high;
};

// Smallest and largest value.
VOXRT_INLINE Range RangeOf(const float* w, int64_t n) {
  Vec low = Load(w);
  Vec high = low;
  for (int64_t i = kLanes; i < n; i += kLanes) {
    const Vec v = Load(w + i);
    low = Min(v, low);
    high = Max(v, high);
  }
  Range range{low[0], high[0]};
  for (int lane = 1; lane < kLanes; ++lane) {
    range.low = std::min(range.low, low[lane]);
    range.high = std::max(range.high, high[lane]);
  }
  return range;
}

VOXRT_INLINE double SumOf(const float* w, int64_t n) {
  double sum = 0.0;
  for (int64_t at = 0; at < n; at += kBlock) {
    Vec part = Splat(0.0f);
    for (int64_t i = at; i < std::min(n, at + kBlock); i += kLanes) part += Load(w + i);
    sum += static_cast<double>(LaneSum(part));
  }
  return sum;
}

// ---- symmetric

struct Moments {  // sums over a group, q = code
  double q = 0.0;
  double qq = 0.0;
  double qw = 0.0;
};

// Codes for scale `s` and their moments. The reference divides; the refit multiplies by the reciprocal (`s` then is 1 /
// scale).
template <bool kDivide>
VOXRT_INLINE Moments SymmetricMoments(const float* w, int64_t n, float s, Range codes) {
  Moments m;
  for (int64_t at = 0; at < n; at += kBlock) {
    Vec qq = Splat(0.0f);
    Vec qw = qq;
    for (int64_t i = at; i < std::min(n, at + kBlock); i += kLanes) {
      const Vec v = Load(w + i);
      const Vec q = RoundClamped(kDivide ? v / s : v * s, codes.low, codes.high);
      qq += q * q;
      qw += v * q;
    }
    m.qq += static_cast<double>(LaneSum(qq));
    m.qw += static_cast<double>(LaneSum(qw));
  }
  return m;
}

// Sum of squared errors with the codes that would be stored for bf16 scale `s`.
VOXRT_INLINE double SymmetricError(const float* w, int64_t n, float s, Range codes) {
  double sum = 0.0;
  for (int64_t at = 0; at < n; at += kBlock) {
    Vec part = Splat(0.0f);
    for (int64_t i = at; i < std::min(n, at + kBlock); i += kLanes) {
      const Vec v = Load(w + i);
      const Vec d = v - RoundClamped(v / s, codes.low, codes.high) * s;
      part += d * d;
    }
    sum += static_cast<double>(LaneSum(part));
  }
  return sum;
}

// docs/model.md 12.2 with the stopping rule of one group.
VOXRT_INLINE float ReferenceScale(const float* w, int64_t n, float start, Range codes) {
  float s = start;
  for (int round = 0; round < kReferenceRounds; ++round) {
    const Moments m = SymmetricMoments<true>(w, n, s, codes);
    if (m.qq <= 0.0) break;
    const float next = std::fabs(std::max(static_cast<float>(m.qw) / static_cast<float>(m.qq), kReferenceFloor));
    if (!std::isfinite(next)) break;
    const float change = std::fabs(next - s) / std::max(s, kReferenceFloor);
    s = next;
    if (change < 1e-5f) break;
  }
  return s;
}

VOXRT_INLINE float RefitScale(const float* w, int64_t n, float start, Range codes) {
  float s = start;
  for (int round = 0; round < kRefitRounds; ++round) {
    const Moments m = SymmetricMoments<false>(w, n, 1.0f / s, codes);
    if (m.qq <= 0.0) break;
    const auto next = static_cast<float>(m.qw / m.qq);
    if (!std::isfinite(next) || std::fabs(next) < kSmallest || next == s) break;
    s = next;
  }
  return s;
}

VOXRT_CLONES void SymmetricGroup(const float* w, int64_t n, Range codes, Search search, int8_t* out, uint16_t* scale) {
  const Range range = RangeOf(w, n);
  const float largest = std::max(std::fabs(range.low), std::fabs(range.high));
  const float start = std::max(largest / -codes.low, kReferenceFloor);
  float best = RoundToBF16(search == Search::kMinMax ? start : ReferenceScale(w, n, start, codes));
  if (search == Search::kRefit && largest > 0.0f) {
    double best_error = SymmetricError(w, n, best, codes);
    // The longer tail gets the code without a counterpart. With 8 bits clipping never pays: only the sign is worth a
    // try.
    const float sign = range.high > -range.low ? -1.0f : 1.0f;
    const int shrinks = codes.high < 8.0f ? 3 : 1;
    for (int shrink = 0; shrink < shrinks; ++shrink) {
      const float magnitude = std::max(largest * (1.0f - 0.1f * static_cast<float>(shrink)) / -codes.low, kSmallest);
      const float candidate = RoundToBF16(RefitScale(w, n, sign * magnitude, codes));
      const double error = SymmetricError(w, n, candidate, codes);
      if (error < best_error) {
        best_error = error;
        best = candidate;
      }
    }
  }
  *scale = F32ToBF16(best);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec q = RoundClamped(Load(w + i) / best, codes.low, codes.high);
    StoreBytes(out + i, q);
  }
}

// ---- asymmetric; codes are centred (q - 8 = -8..7) until they are written

struct Affine {  // value = code * scale + zero
  float scale;
  float zero;
};

// Nearest bf16 that is not an infinity.
VOXRT_INLINE float FiniteBF16(double value) {
  constexpr double kLargest = 0x1.fep127;
  return RoundToBF16(static_cast<float>(std::clamp(value, -kLargest, kLargest)));
}

VOXRT_INLINE double AffineError(const float* w, int64_t n, Affine a) {
  double sum = 0.0;
  for (int64_t at = 0; at < n; at += kBlock) {
    Vec part = Splat(0.0f);
    for (int64_t i = at; i < std::min(n, at + kBlock); i += kLanes) {
      const Vec v = Load(w + i);
      const Vec d = v - (RoundClamped((v - a.zero) / a.scale, -8.0f, 7.0f) * a.scale + a.zero);
      part += d * d;
    }
    sum += static_cast<double>(LaneSum(part));
  }
  return sum;
}

VOXRT_INLINE Moments AffineMoments(const float* w, int64_t n, Affine a) {
  Moments m;
  const float inverse = 1.0f / a.scale;
  for (int64_t at = 0; at < n; at += kBlock) {
    Vec q_sum = Splat(0.0f);
    Vec qq = q_sum;
    Vec qw = q_sum;
    for (int64_t i = at; i < std::min(n, at + kBlock); i += kLanes) {
      const Vec v = Load(w + i);
      const Vec q = RoundClamped((v - a.zero) * inverse, -8.0f, 7.0f);
      q_sum += q;
      qq += q * q;
      qw += q * v;
    }
    m.q += static_cast<double>(LaneSum(q_sum));
    m.qq += static_cast<double>(LaneSum(qq));
    m.qw += static_cast<double>(LaneSum(qw));
  }
  return m;
}

// Min/max parameters; the scale is rounded first so that the zero fits it.
VOXRT_INLINE Affine MinMaxAffine(Range range) {
  const float width = range.high - range.low;
  const float step = std::isfinite(width) ? width / 15.0f : range.high / 15.0f - range.low / 15.0f;
  const float scale = RoundToBF16(std::max(step, kSmallest));
  return {scale, FiniteBF16(static_cast<double>(range.low) + 8.0 * static_cast<double>(scale))};
}

// Alternates codes and the regression line through (code, value); the zero is fitted once more to the rounded scale.
VOXRT_INLINE Affine RefitAffine(const float* w, int64_t n, double w_sum, Affine start) {
  const auto count = static_cast<double>(n);
  Affine a = start;
  Moments m = AffineMoments(w, n, a);
  for (int round = 0;; ++round) {
    const double spread = m.qq - m.q * m.q / count;
    if (spread <= 0.0) break;
    const auto scale = static_cast<float>((m.qw - m.q * w_sum / count) / spread);
    if (!(scale >= kSmallest) || !std::isfinite(scale)) break;
    a = {scale, static_cast<float>((w_sum - static_cast<double>(scale) * m.q) / count)};
    if (round + 1 == kAffineRounds) break;
    m = AffineMoments(w, n, a);
  }
  const float scale = RoundToBF16(a.scale);
  return {scale, RoundToBF16(static_cast<float>((w_sum - static_cast<double>(scale) * m.q) / count))};
}

// The 20 HQQ rounds of 12.1 in fp32 (only the zero moves); calls consider(candidate) after every round. Scalar: it
// exists to be compared with, and its power function is what the refit avoids.
template <typename Consider>
void HqqRounds(const float* w, int64_t n, Range range, Consider consider) {
  const float inverse = std::min(15.0f / (range.high - range.low), 2e4f);
  float z = std::nearbyint(-range.low * inverse);
  float beta = 10.0f;
  const float scale = RoundToBF16(1.0f / inverse);
  for (int round = 0; round < kReferenceRounds; ++round) {
    std::array<float, kLanes> lanes{};
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
      const float q = std::clamp(std::nearbyint(w[i] * inverse + z), 0.0f, 15.0f);
      const float d = w[i] - (q - z) / inverse;
      const float a = std::fabs(d);
      const float e = a == 0.0f ? 0.0f : std::copysign(std::max(a - (1.0f / beta) * std::pow(a, -0.3f), 0.0f), d);
      lanes[i % kLanes] += q - (w[i] - e) * inverse;
      if ((i + 1) % kBlock == 0 || i + 1 == n) {
        sum += static_cast<double>(((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                                   ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])));
        lanes.fill(0.0f);
      }
    }
    z = static_cast<float>(sum / static_cast<double>(n));
    beta *= 1.01f;
    consider(Affine{scale, RoundToBF16((8.0f - z) / inverse)});
  }
}

VOXRT_CLONES Affine RefitSearch(const float* w, int64_t n, Range range) {
  Affine best = MinMaxAffine(range);
  double best_error = AffineError(w, n, best);
  const double w_sum = SumOf(w, n);
  const float middle = 0.5f * range.low + 0.5f * range.high;
  for (const float shrink : {1.0f, 0.9f, 0.8f}) {
    const float scale = std::max((range.high - range.low) * shrink / 15.0f, kSmallest);
    const Affine candidate = RefitAffine(w, n, w_sum, {scale, middle + 0.5f * scale});
    const double error = AffineError(w, n, candidate);
    if (error < best_error) {
      best_error = error;
      best = candidate;
    }
  }
  return best;
}

VOXRT_CLONES Affine ReferenceSearch(const float* w, int64_t n, Range range) {
  Affine best = MinMaxAffine(range);
  double best_error = AffineError(w, n, best);
  HqqRounds(w, n, range, [&](Affine candidate) {
    const double error = AffineError(w, n, candidate);
    if (error < best_error) {
      best_error = error;
      best = candidate;
    }
  });
  return best;
}

VOXRT_CLONES void WriteAffineCodes(const float* w, int64_t n, Affine a, uint8_t* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec q = RoundClamped((Load(w + i) - a.zero) / a.scale, -8.0f, 7.0f) + 8.0f;
    StoreBytes(out + i, q);
  }
}

}  // namespace

std::optional<Search> ParseSearch(std::string_view name) {
  for (const Search search : {Search::kMinMax, Search::kReference, Search::kRefit}) {
    if (name == SearchName(search)) return search;
  }
  return std::nullopt;
}

std::string_view SearchName(Search search) {
  switch (search) {
    case Search::kMinMax:
      return "minmax";
    case Search::kReference:
      return "reference";
    case Search::kRefit:
      return "refit";
  }
  return "?";
}

void QuantizeSymmetric(const float* values, int64_t count, int bits, Search search, int8_t* codes, uint16_t* scale) {
  VOXRT_CHECK(count > 0 && count % kLanes == 0 && (bits == 4 || bits == 8));
  SymmetricGroup(values, count, bits == 4 ? Range{-8.0f, 7.0f} : Range{-128.0f, 127.0f}, search, codes, scale);
}

void QuantizeAsymmetric(const float* values, int64_t count, Search search, uint8_t* codes, uint16_t* scale,
                        uint16_t* zero) {
  VOXRT_CHECK(count > 0 && count % kLanes == 0);
  const Range range = RangeOf(values, count);
  const bool flat = !(range.high - range.low >= kSmallest);
  Affine best;
  if (flat) {
    best = {RoundToBF16(kSmallest),
            FiniteBF16(static_cast<double>(range.low))};  // one value: the zero alone carries it
  } else if (search == Search::kMinMax || !std::isfinite(range.high - range.low)) {
    best = MinMaxAffine(range);
  } else {
    best = search == Search::kRefit ? RefitSearch(values, count, range) : ReferenceSearch(values, count, range);
  }
  *scale = F32ToBF16(best.scale);
  *zero = F32ToBF16(best.zero);
  WriteAffineCodes(values, count, best, codes);
}

}  // namespace voxrt::quant
