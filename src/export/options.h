// What an export is asked to do: the flags of `voxrt export` (ExecuTorch's names and meanings), and the rules that need
// no checkpoint.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "base/status.h"
#include "quant/quantize.h"

namespace voxrt::exporter {

inline constexpr int kAutoGroup = std::numeric_limits<int>::min();  // no number that anybody gives
inline constexpr char kTilePacking[] = "tile_packed_to_4d";
inline constexpr char kKeepFloat[] = "none";

// One family of weights.
struct QuantChoice {
  std::string type;        // "", "4w", "8w", "8da4w", "8da8w"; empty = stays float
  int group = kAutoGroup;  // 32, 64, 128, 256; 0 = one scale per row (8 bit); auto = 32 for 4 bit, 0 for 8 bit
  std::string packing;     // "" or "tile_packed_to_4d"
};

struct ExportOptions {
  std::string model_path;
  std::string output_path;                // the artifact (a manifest where data_path is given)
  std::string data_path;                  // weights in a second file; empty = all in one
  std::string backend = "cpu";            // "cpu" or "cuda": for whom to validate; the canonical artifact runs on both
  std::string dtype = "bf16";             // "fp32" or "bf16": of what is not quantized
  QuantChoice linear;                     // decoder's linear layers, and the head where `head` says nothing
  QuantChoice encoder;                    // encoder's and adapter's linear layers
  QuantChoice embedding;                  // "4w" or "8w"
  QuantChoice head;                       // "none" = stays float whatever the decoder is
  bool streaming = false;                 // recorded
  int64_t max_seq_len = 4096;             // recorded
  std::optional<int64_t> max_enc_len;     // encoder window; default: the checkpoint's
  std::optional<int64_t> sliding_window;  // decoder window; default: the checkpoint's
  int delay_tokens = 6;                   // default of the artifact
  quant::Search search = quant::Search::kRefit;
  int threads = 0;  // 0 = one per core
};

// Everything that can be said before a file is opened. The message is one line that names the fix.
Status ValidateOptions(const ExportOptions& options);

// The command line that makes this artifact again, without the places where it is written. Shell-quoted.
std::string CommandOf(const ExportOptions& options);

}  // namespace voxrt::exporter
