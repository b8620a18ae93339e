// Rows are taken by the workers in chunks from one counter (weights differ in size, cores in speed). Chunks are
// multiples of 8 rows, the height of a tile. Partial sums are kept per chunk and added in order, so the report does not
// depend on the thread count.
#include "quant/encode.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "quant/pack.h"
#include "quant/vector.h"

namespace voxrt::quant {
namespace {

using namespace vector;  // NOLINT(google-build-using-namespace): see quantize.cc

constexpr int64_t kChunkRows = 32;
constexpr int64_t kTileRows = 8;
constexpr int64_t kPad = 8;  // quantizers take multiples of 8 values

int64_t GroupSize(const Format& format, int64_t cols) { return format.group == 0 ? cols : format.group; }

struct ChunkSums {
  double squared_error = 0.0;
  double squared = 0.0;
  double max_abs = 0.0;
  double max_value = 0.0;
  int64_t bad_row = -1;  // a row with a value that is not finite
};

struct RowSums {
  double squared = 0.0;
  float max_abs = 0.0f;
  bool finite = true;
};

VOXRT_CLONES void WidenBF16(const uint16_t* bits, int64_t count, float* out) {
  auto* words = reinterpret_cast<uint32_t*>(out);
  for (int64_t i = 0; i < count; ++i) words[i] = static_cast<uint32_t>(bits[i]) << 16;
}

// Collects squares in fp32 lanes per block, in double across blocks.
class LaneSums {
 public:
  VOXRT_INLINE void Add(Vec v) {
    block_ += v * v;
    largest_ = Max(Abs(v), largest_);
    if (++vectors_ % 16 == 0) Flush();
  }
  VOXRT_INLINE RowSums Finish() {
    Flush();
    const float largest = LaneMax(largest_);
    return {squared_, largest, largest <= std::numeric_limits<float>::max()};
  }

 private:
  VOXRT_INLINE void Flush() {
    squared_ += static_cast<double>(LaneSum(block_));
    block_ = Splat(0.0f);
  }
  Vec block_ = Splat(0.0f);
  Vec largest_ = Splat(0.0f);
  double squared_ = 0.0;
  int vectors_ = 0;
};

// `count` of these is a multiple of 8. A NaN or infinity anywhere makes `finite` false.
VOXRT_CLONES RowSums SumRow(const float* values, int64_t count) {
  LaneSums sums;
  Vec poison = Splat(0.0f);  // stays zero unless something is not finite
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec v = Load(values + i);
    poison += v * 0.0f;
    sums.Add(v);
  }
  RowSums out = sums.Finish();
  out.finite = LaneSum(poison) == 0.0f;
  return out;
}

VOXRT_CLONES RowSums SymmetricRowError(const float* values, const int8_t* codes, int64_t count, float scale) {
  LaneSums sums;
  for (int64_t i = 0; i < count; i += kLanes) sums.Add(Load(values + i) - RoundBF16(LoadBytes(codes + i) * scale));
  return sums.Finish();
}

// AsymmetricValue in fp32: its sum is rounded twice, which is of no weight in a report.
VOXRT_CLONES RowSums AsymmetricRowError(const float* values, const uint8_t* codes, int64_t count, float scale,
                                        float zero) {
  LaneSums sums;
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec code = LoadBytes(reinterpret_cast<const int8_t*>(codes) + i) - 8.0f;
    sums.Add(Load(values + i) - RoundBF16(code * scale + zero));
  }
  return sums.Finish();
}

// Everything one worker needs; rows are widened once, quantized, packed and compared.
class RowEncoder {
 public:
  RowEncoder(const HostLinear& source, const Format& format, Search search, EncodedLinear* out)
      : source_(source),
        format_(format),
        search_(search),
        out_(out),
        cols_(source.cols),
        group_(GroupSize(format, source.cols)),
        groups_(source.cols / group_),
        values_(static_cast<size_t>((cols_ + kPad - 1) / kPad * kPad)),
        codes_(values_.size() * kTileRows),
        scale_(static_cast<size_t>(groups_)),
        zero_(static_cast<size_t>(groups_)) {}

  // Rows [row, row + count) of one tile; count is 8 for tiles, any number otherwise.
  void Encode(int64_t row, int64_t count, base::FunctionRef<int64_t(int64_t)> source_row, ChunkSums* sums) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t from = source_row(row + i);
      if (!Widen(from, sums)) {
        sums->bad_row = from;
        return;
      }
      if (format_.kind == FormatKind::kInt4Tile) {
        EncodeTileRow(row + i, reinterpret_cast<uint8_t*>(codes_.data()) + i * cols_, sums);
      } else {
        EncodeSymmetricRow(row + i, sums);
      }
    }
    if (format_.kind == FormatKind::kInt4Tile) {
      PackTileRows(reinterpret_cast<const uint8_t*>(codes_.data()), cols_,
                   reinterpret_cast<uint32_t*>(out_->data.data()) + row / kTileRows * cols_);
    }
  }

 private:
  // One source row as fp32 into values_; false where a value is not finite.
  bool Widen(int64_t row, ChunkSums* sums) {
    const auto base = static_cast<size_t>(row * cols_);
    if (source_.format.dtype == DType::kBF16) {
      WidenBF16(static_cast<const uint16_t*>(source_.data) + base, cols_, values_.data());
    } else {
      for (size_t col = 0; col < static_cast<size_t>(cols_); ++col) {
        values_[col] = LoadFloat(source_.data, source_.format.dtype, base + col);
      }
    }
    const RowSums row_sums = SumRow(values_.data(), static_cast<int64_t>(values_.size()));
    if (!row_sums.finite) return false;
    sums->squared += row_sums.squared;
    sums->max_value = std::max(sums->max_value, static_cast<double>(row_sums.max_abs));
    return true;
  }

  void EncodeSymmetricRow(int64_t row, ChunkSums* sums) {
    const bool int4 = format_.kind == FormatKind::kInt4;
    int8_t* codes =
        int4 || cols_ % kPad != 0 ? codes_.data() : reinterpret_cast<int8_t*>(out_->data.data()) + row * cols_;
    uint16_t* scale = out_->scale.data() + row * groups_;
    for (int64_t group = 0; group < groups_; ++group) {
      const int64_t at = group * group_;
      const int64_t padded = (group_ + kPad - 1) / kPad * kPad;
      QuantizeSymmetric(values_.data() + at, padded, int4 ? 4 : 8, search_, codes + at, scale + group);
      Add(SymmetricRowError(values_.data() + at, codes + at, padded, BF16ToF32(scale[group])), sums);
    }
    if (int4) {
      PackInt4Row(codes, cols_, reinterpret_cast<uint8_t*>(out_->data.data()) + row * (cols_ / 2));
    } else if (codes == codes_.data()) {
      std::copy_n(codes, cols_, reinterpret_cast<int8_t*>(out_->data.data()) + row * cols_);
    }
  }

  void EncodeTileRow(int64_t row, uint8_t* codes, ChunkSums* sums) {
    for (int64_t group = 0; group < groups_; ++group) {
      const int64_t at = group * group_;
      uint16_t* scale = &scale_[static_cast<size_t>(group)];
      uint16_t* zero = &zero_[static_cast<size_t>(group)];
      QuantizeAsymmetric(values_.data() + at, group_, search_, codes + at, scale, zero);
      Add(AsymmetricRowError(values_.data() + at, codes + at, group_, BF16ToF32(*scale), BF16ToF32(*zero)), sums);
    }
    PackScaleZeroRow(scale_.data(), zero_.data(), row, source_.rows, groups_, out_->scale.data());
  }

  static void Add(const RowSums& difference, ChunkSums* sums) {
    sums->squared_error += difference.squared;
    sums->max_abs = std::max(sums->max_abs, static_cast<double>(difference.max_abs));
  }

  const HostLinear& source_;
  const Format& format_;
  Search search_;
  EncodedLinear* out_;
  int64_t cols_;
  int64_t group_;
  int64_t groups_;
  std::vector<float> values_;    // one source row, zero-padded to a multiple of 8
  std::vector<int8_t> codes_;    // up to 8 rows
  std::vector<uint16_t> scale_;  // [groups] of one tile row
  std::vector<uint16_t> zero_;
};

}  // namespace

int64_t DataBytes(const Format& format, int64_t rows, int64_t cols) {
  switch (format.kind) {
    case FormatKind::kFloat:
      return rows * cols * static_cast<int64_t>(DTypeBytes(format.dtype));
    case FormatKind::kInt4:
    case FormatKind::kInt4Tile:
      return rows * (cols / 2);
    case FormatKind::kInt8:
      return rows * cols;
  }
  return 0;
}

int64_t ScaleCount(const Format& format, int64_t rows, int64_t cols) {
  if (format.kind == FormatKind::kFloat) return 0;
  const int64_t groups = rows * (cols / GroupSize(format, cols));
  return format.kind == FormatKind::kInt4Tile ? 2 * groups : groups;
}

Status CheckShape(const Format& format, int64_t rows, int64_t cols) {
  const auto fail = [](std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); };
  if (format.kind == FormatKind::kFloat) return {};
  const bool int8 = format.kind == FormatKind::kInt8;
  if (format.group != 0 && format.group != 32 && format.group != 64 && format.group != 128 && format.group != 256) {
    return fail("group size " + std::to_string(format.group) + " is not supported; use 32, 64, 128 or 256" +
                (int8 ? ", or 0 for one scale per row" : ""));
  }
  if (format.group == 0 && !int8) return fail("group size 0 (one scale per row) needs 8 bits; use 32, 64, 128 or 256");
  if (format.group != 0 && cols % format.group != 0) {
    return fail("its " + std::to_string(cols) + " columns are not a multiple of group size " +
                std::to_string(format.group) + "; choose a smaller group or leave it unquantized");
  }
  if (format.kind == FormatKind::kInt4Tile && (rows % kTileRows != 0 || cols % 128 != 0)) {
    return fail("tile_packed_to_4d needs rows in multiples of 8 and columns in multiples of 128, found " +
                std::to_string(rows) + " x " + std::to_string(cols) + "; export it without a packing format");
  }
  return {};
}

Result<EncodedLinear> EncodeLinear(const HostLinear& source, const Format& format, Search search,
                                   base::ThreadPool& pool, base::FunctionRef<int64_t(int64_t)> source_row) {
  VOXRT_CHECK(source.format.kind == FormatKind::kFloat && format.kind != FormatKind::kFloat);
  VOXRT_RETURN_IF_ERROR(CheckShape(format, source.rows, source.cols));
  EncodedLinear out{format, source.rows, source.cols, {}, {}, {}};
  out.data.resize(static_cast<size_t>(DataBytes(format, source.rows, source.cols)));
  out.scale.resize(static_cast<size_t>(ScaleCount(format, source.rows, source.cols)));
  const int64_t chunks = (source.rows + kChunkRows - 1) / kChunkRows;
  std::vector<ChunkSums> sums(static_cast<size_t>(chunks));
  std::atomic<int64_t> next{0};
  pool.Run([&](int, int) {
    RowEncoder encoder(source, format, search, &out);
    for (int64_t chunk = next++; chunk < chunks; chunk = next++) {
      const int64_t end = std::min(source.rows, (chunk + 1) * kChunkRows);
      for (int64_t row = chunk * kChunkRows; row < end; row += kTileRows) {
        encoder.Encode(row, std::min(kTileRows, end - row), source_row, &sums[static_cast<size_t>(chunk)]);
      }
    }
  });
  ChunkSums total;
  for (const ChunkSums& part : sums) {
    if (part.bad_row >= 0) {
      return Status(StatusCode::kInvalidModel, "row " + std::to_string(part.bad_row) +
                                                   " holds a value that is not finite; fetch the checkpoint again");
    }
    total.squared_error += part.squared_error;
    total.squared += part.squared;
    total.max_abs = std::max(total.max_abs, part.max_abs);
    total.max_value = std::max(total.max_value, part.max_value);
  }
  out.error = {total.squared > 0.0 ? std::sqrt(total.squared_error / total.squared) : 0.0, total.max_abs,
               total.max_value};
  return out;
}

Result<EncodedLinear> EncodeLinear(const HostLinear& source, const Format& format, Search search,
                                   base::ThreadPool& pool) {
  return EncodeLinear(source, format, search, pool, [](int64_t row) { return row; });
}

}  // namespace voxrt::quant
