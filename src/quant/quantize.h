// Weight quantizers: how the integer codes, scales and zeros of one group of weights are chosen (docs/model.md 12).
// What the stored numbers mean is defined elsewhere (format.h); everything here only searches, so a better search never
// changes a reader. Deterministic: a group is decided alone, in a fixed order of fp32 operations that does not depend
// on the instruction set.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace voxrt::quant {

enum class Search : uint8_t {
  kMinMax,     // round to nearest on the range of the group
  kReference,  // the published search: 12.2's alternating fit, or the 20 HQQ rounds of 12.1 against bf16-rounded
               // parameters
  kRefit,      // kReference's symmetric result or min/max against least-squares refits from shrunk starts: never worse,
               // same storage
};
std::optional<Search> ParseSearch(std::string_view name);  // "minmax", "reference", "refit"
std::string_view SearchName(Search search);

// Symmetric, `bits` 4 (codes -8..7) or 8 (-128..127): value ~ code * scale. `count` must be a multiple of 8; a shorter
// last run is padded with zeros by the caller, which changes nothing. The scale is bf16 and may be negative (the side
// with the longer tail then gets the code that has no counterpart); codes are computed against the rounded scale.
// Values must be finite.
void QuantizeSymmetric(const float* values, int64_t count, int bits, Search search, int8_t* codes, uint16_t* scale);

// Asymmetric 4 bit: value ~ (code - 8) * scale + zero, code 0..15, scale > 0 and zero bf16. `count` must be a multiple
// of 8.
void QuantizeAsymmetric(const float* values, int64_t count, Search search, uint8_t* codes, uint16_t* scale,
                        uint16_t* zero);

}  // namespace voxrt::quant
