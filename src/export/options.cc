#include "export/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace voxrt::exporter {
namespace {

constexpr int kMinDelayTokens = 1;
constexpr int kMaxDelayTokens = 30;
constexpr int64_t kFramesPerToken = 4;  // of the encoder
constexpr int64_t kMaxSeqLen = 1'000'000'000;

Status Refuse(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

bool IsOneOf(std::string_view value, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool IsFourBit(std::string_view type) { return type == "4w" || type == "8da4w"; }

// `flag` is the family's name: "--qlinear". `types` are those that the family takes.
Status ValidateChoice(const QuantChoice& choice, const std::string& flag, const ExportOptions& options,
                      std::initializer_list<std::string_view> types) {
  if (IsOneOf(choice.type, {"fpa4w", "nvfp4"})) {
    return Refuse(
        fmt::format("{} {} is a format of Apple and Blackwell backends that voxrt does not have; use 4w or 8da4w", flag,
                    choice.type));
  }
  if (choice.type == kKeepFloat && IsOneOf(kKeepFloat, types)) {
    if (choice.group == kAutoGroup && choice.packing.empty()) return {};
    return Refuse(fmt::format("{} {} keeps the head's floats, which have no groups and no packing; drop {}-{}", flag,
                              kKeepFloat, flag, choice.packing.empty() ? "group-size" : "packing-format"));
  }
  if (!choice.type.empty() && !IsOneOf(choice.type, types)) {
    return Refuse(fmt::format("{} {} is unknown; use one of {}", flag, choice.type, fmt::join(types, ", ")));
  }
  if (choice.type.empty()) {
    if (choice.group != kAutoGroup)
      return Refuse(fmt::format("{}-group-size has no effect without {}; add {} 4w, or drop it", flag, flag, flag));
    if (!choice.packing.empty()) {
      return Refuse(
          fmt::format("{}-packing-format has no effect without {} 4w; add it, or drop the packing format", flag, flag));
    }
    return {};
  }
  if (!choice.packing.empty()) {
    if (choice.packing != kTilePacking) {
      return Refuse(
          fmt::format("{}-packing-format {} is unknown; the only one is {}", flag, choice.packing, kTilePacking));
    }
    if (choice.type != "4w") {
      return Refuse(
          fmt::format("{}-packing-format {} needs {} 4w, found {}; change the type or drop the packing format", flag,
                      kTilePacking, flag, choice.type));
    }
    if (options.backend != "cuda") {
      return Refuse(
          fmt::format("{}-packing-format {} is the order of CUDA's tensor cores; add --backend cuda, or drop it", flag,
                      kTilePacking));
    }
  }
  if (choice.group == kAutoGroup) return {};
  if (choice.group == 0 && IsFourBit(choice.type)) {
    return Refuse(fmt::format("{}-group-size 0 (one scale per row) needs 8 bits; use 32, 64, 128 or 256 with {}", flag,
                              choice.type));
  }
  if (choice.group != 0 && choice.group != 32 && choice.group != 64 && choice.group != 128 && choice.group != 256) {
    return Refuse(fmt::format("{}-group-size {} is not supported; use 32, 64, 128 or 256{}", flag, choice.group,
                              IsFourBit(choice.type) ? "" : ", or 0 for one scale per row"));
  }
  return {};
}

// A token's own frames must fit into the encoder's window, and the sound that a token is about into the decoder's:
// the text trails it by the delay.
Status ValidateWindows(const ExportOptions& options) {
  const auto check = [](const char* flag, std::optional<int64_t> wanted, int64_t least, const char* why) -> Status {
    if (!wanted.has_value() || *wanted >= least) return {};
    return Refuse(fmt::format("{} {} is too small for {}; use {} or more, or leave it out for the checkpoint's window",
                              flag, *wanted, why, least));
  };
  VOXRT_RETURN_IF_ERROR(check("--max-enc-len", options.max_enc_len, kFramesPerToken, "the frames of one token, 80 ms"));
  return check("--sliding-window", options.sliding_window, int64_t{options.delay_tokens} + 1,
               "what the delay looks back at (--delay-tokens and one)");
}

std::string ShellQuoted(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.' || c == '/' || c == ',' || c == '=' || c == '+' || c == ':' || c == '@';
  });
  if (plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace

Status ValidateOptions(const ExportOptions& options) {
  if (options.model_path.empty()) return Refuse("--model is missing: name the checkpoint's directory");
  if (options.output_path.empty()) return Refuse("--output or --output-dir is missing: say where the artifact goes");
  if (!IsOneOf(options.backend, {"cpu", "cuda"}))
    return Refuse(fmt::format("--backend {} is unknown; use cpu or cuda", options.backend));
  if (!IsOneOf(options.dtype, {"fp32", "bf16"}))
    return Refuse(fmt::format("--dtype {} is unknown; use fp32 or bf16", options.dtype));
  if (options.backend == "cuda" && options.dtype == "fp32") {
    return Refuse("--backend cuda computes in bf16, --dtype fp32 is not possible there; use --dtype bf16");
  }
  const std::initializer_list<std::string_view> all = {"4w", "8w", "8da4w", "8da8w"};
  VOXRT_RETURN_IF_ERROR(ValidateChoice(options.linear, "--qlinear", options, all));
  VOXRT_RETURN_IF_ERROR(ValidateChoice(options.encoder, "--qlinear-encoder", options, all));
  VOXRT_RETURN_IF_ERROR(ValidateChoice(options.embedding, "--qembedding", options, {"4w", "8w"}));
  VOXRT_RETURN_IF_ERROR(ValidateChoice(options.head, "--qhead", options, {"4w", "8w", "8da4w", "8da8w", kKeepFloat}));
  if (options.delay_tokens < kMinDelayTokens || options.delay_tokens > kMaxDelayTokens) {
    return Refuse(fmt::format("--delay-tokens {} is out of range; use {} to {} (80 ms each; 6 = 480 ms)",
                              options.delay_tokens, kMinDelayTokens, kMaxDelayTokens));
  }
  if (options.max_seq_len <= 0 || options.max_seq_len > kMaxSeqLen) {
    return Refuse(
        fmt::format("--max-seq-len {} is out of range; use 1 to {} (it is only recorded: caches are rings here)",
                    options.max_seq_len, kMaxSeqLen));
  }
  VOXRT_RETURN_IF_ERROR(ValidateWindows(options));
  if (options.threads < 0) return Refuse("--threads must be positive, or 0 for one per core");
  if (!options.data_path.empty() && options.data_path == options.output_path) {
    return Refuse("--data-path and --output name the same file; give the weights a name of their own");
  }
  return {};
}

std::string CommandOf(const ExportOptions& options) {
  std::vector<std::string> words = {"voxrt",     "export",        "--model", ShellQuoted(options.model_path),
                                    "--backend", options.backend, "--dtype", options.dtype};
  const auto choice = [&](const std::string& flag, const QuantChoice& c) {
    if (c.type.empty()) return;
    words.insert(words.end(), {flag, c.type});
    if (c.group != kAutoGroup) words.insert(words.end(), {flag + "-group-size", std::to_string(c.group)});
    if (!c.packing.empty()) words.insert(words.end(), {flag + "-packing-format", c.packing});
  };
  choice("--qlinear", options.linear);
  choice("--qlinear-encoder", options.encoder);
  choice("--qembedding", options.embedding);
  choice("--qhead", options.head);
  if (options.search != quant::Search::kRefit)
    words.insert(words.end(), {"--quantizer", std::string(quant::SearchName(options.search))});
  if (options.streaming) words.emplace_back("--streaming");
  if (options.max_seq_len != ExportOptions().max_seq_len)
    words.insert(words.end(), {"--max-seq-len", std::to_string(options.max_seq_len)});
  if (options.max_enc_len) words.insert(words.end(), {"--max-enc-len", std::to_string(*options.max_enc_len)});
  if (options.sliding_window) words.insert(words.end(), {"--sliding-window", std::to_string(*options.sliding_window)});
  words.insert(words.end(), {"--delay-tokens", std::to_string(options.delay_tokens)});
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace voxrt::exporter
