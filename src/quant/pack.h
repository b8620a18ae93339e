// Byte orders of quantized weights: canonical 4-bit rows (docs/model.md 12.7) and PyTorch's tile_packed_to_4d words
// with their scale/zero table (12.1). Pure functions; packing changes the order of bytes, never a value.
#pragma once

#include <cstdint>

namespace voxrt::quant {

// Canonical 4-bit row: within each run of 32 columns byte j holds column j (low nibble) and j + 16 (high), codes stored
// + 8. `cols` % 32 == 0; codes -8..7 [cols]; bytes [cols / 2].
void PackInt4Row(const int8_t* codes, int64_t cols, uint8_t* bytes);
void UnpackInt4Row(const uint8_t* bytes, int64_t cols, int8_t* codes);

// Tile order of 8 rows (inner_k_tiles = 8): codes 0..15 [8, cols], words [cols / 128, 32, 4]. `cols` % 128 == 0. The
// words of rows 8a .. 8a + 7 lie at offset a * cols of the tensor [rows / 8, cols / 128, 32, 4].
void PackTileRows(const uint8_t* codes, int64_t cols, uint32_t* words);
void UnpackTileRows(const uint32_t* words, int64_t cols, uint8_t* codes);

// scale and zero of one row, [groups] each, into the table [groups, rows, 2] (and back).
void PackScaleZeroRow(const uint16_t* scale, const uint16_t* zero, int64_t row, int64_t rows, int64_t groups,
                      uint16_t* table);
void UnpackScaleZeroRow(const uint16_t* table, int64_t row, int64_t rows, int64_t groups, uint16_t* scale,
                        uint16_t* zero);

}  // namespace voxrt::quant
