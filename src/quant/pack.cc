#include "quant/pack.h"

#include <array>
#include <cstddef>

#include "base/check.h"

namespace voxrt::quant {
namespace {

constexpr int64_t kRun = 32;        // columns of one canonical 4-bit run
constexpr int64_t kTileCols = 128;  // columns of one tile block
constexpr int kLanes = 32;
constexpr int kWords = 4;  // per lane and block
// Column of nibble i of a word, relative to k0 = 32 * word + 2 * (lane % 4): lane `t` of an m16n8k16 step owns column
// pairs 0/1 and 8/9 of its 16-column tile; even columns fill the low half-word.
constexpr std::array<int, 8> kNibbleColumn = {0, 8, 16, 24, 1, 9, 17, 25};

// Calls visit(word index, row 0..7, first column of the word) for every word of 8 rows.
template <typename Visit>
void ForEachWord(int64_t cols, Visit visit) {
  for (int64_t block = 0; block < cols / kTileCols; ++block) {
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int word = 0; word < kWords; ++word) {
        visit((block * kLanes + lane) * kWords + word, lane / 4, block * kTileCols + word * kRun + 2 * (lane % 4));
      }
    }
  }
}

}  // namespace

void PackInt4Row(const int8_t* codes, int64_t cols, uint8_t* bytes) {
  VOXRT_DCHECK(cols % kRun == 0);
  for (int64_t run = 0; run < cols; run += kRun) {
    for (int64_t j = 0; j < kRun / 2; ++j) {
      const int low = codes[run + j] + 8;
      const int high = codes[run + j + kRun / 2] + 8;
      bytes[run / 2 + j] = static_cast<uint8_t>(low | high << 4);
    }
  }
}

void UnpackInt4Row(const uint8_t* bytes, int64_t cols, int8_t* codes) {
  VOXRT_DCHECK(cols % kRun == 0);
  for (int64_t run = 0; run < cols; run += kRun) {
    for (int64_t j = 0; j < kRun / 2; ++j) {
      const int byte = bytes[run / 2 + j];
      codes[run + j] = static_cast<int8_t>((byte & 15) - 8);
      codes[run + j + kRun / 2] = static_cast<int8_t>((byte >> 4) - 8);
    }
  }
}

void PackTileRows(const uint8_t* codes, int64_t cols, uint32_t* words) {
  VOXRT_DCHECK(cols % kTileCols == 0);
  ForEachWord(cols, [&](int64_t at, int row, int64_t col) {
    uint32_t word = 0;
    for (size_t i = 0; i < kNibbleColumn.size(); ++i) {
      word |= static_cast<uint32_t>(codes[row * cols + col + kNibbleColumn[i]] & 15) << (4 * i);
    }
    words[at] = word;
  });
}

void UnpackTileRows(const uint32_t* words, int64_t cols, uint8_t* codes) {
  VOXRT_DCHECK(cols % kTileCols == 0);
  ForEachWord(cols, [&](int64_t at, int row, int64_t col) {
    for (size_t i = 0; i < kNibbleColumn.size(); ++i) {
      codes[row * cols + col + kNibbleColumn[i]] = static_cast<uint8_t>((words[at] >> (4 * i)) & 15u);
    }
  });
}

void PackScaleZeroRow(const uint16_t* scale, const uint16_t* zero, int64_t row, int64_t rows, int64_t groups,
                      uint16_t* table) {
  for (int64_t group = 0; group < groups; ++group) {
    table[(group * rows + row) * 2] = scale[group];
    table[(group * rows + row) * 2 + 1] = zero[group];
  }
}

void UnpackScaleZeroRow(const uint16_t* table, int64_t row, int64_t rows, int64_t groups, uint16_t* scale,
                        uint16_t* zero) {
  for (int64_t group = 0; group < groups; ++group) {
    scale[group] = table[(group * rows + row) * 2];
    zero[group] = table[(group * rows + row) * 2 + 1];
  }
}

}  // namespace voxrt::quant
