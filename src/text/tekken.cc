// Reads tekken.json. The vocabulary (about 150,000 entries in the real file) is taken entry by entry from the parser,
// so no document of the whole file is ever built.
#include "text/tekken.h"

#include <fmt/format.h>

#include <cmath>

#include "base/base64.h"
#include "base/json.h"

namespace voxrt::text {
namespace {

using base::Json;

constexpr int64_t kMaxVocabulary = int64_t{1} << 22;

Status Bad(std::string_view what) {
  return Status(StatusCode::kInvalidModel,
                fmt::format("tekken.json: {}; take the file from the model's repository again", what));
}

Result<int64_t> ReadInt(const Json& object, std::string_view section, std::string_view key, int64_t least,
                        int64_t most) {
  const Json* value = object.Find(key);
  const std::optional<int64_t> integer = value != nullptr ? value->AsInt() : std::nullopt;
  if (integer.has_value() && *integer >= least && *integer <= most) return *integer;
  const std::string found = value == nullptr      ? "missing"
                            : integer.has_value() ? fmt::format("{}", *integer)
                                                  : value->TypeName();
  return Bad(fmt::format("{}.{} is {}, expected an integer from {} to {}", section, key, found, least, most));
}

// One entry of `vocab`: {"rank": index, "token_bytes": base64, ...}.
Status ReadPiece(size_t index, const Json& entry, std::vector<std::string>* pieces) {
  if (index >= static_cast<size_t>(kMaxVocabulary))
    return Bad(fmt::format("vocab has more than {} entries", kMaxVocabulary));
  const Json* rank = entry.Find("rank");
  if (rank == nullptr || rank->AsInt() != static_cast<int64_t>(index)) {
    return Bad(fmt::format("vocab entry {} has another rank, expected consecutive ranks from 0", index));
  }
  const Json* text = entry.Find("token_bytes");
  const std::string* encoded = text != nullptr ? text->AsString() : nullptr;
  std::optional<std::string> bytes = encoded != nullptr ? base::DecodeBase64(*encoded) : std::nullopt;
  if (!bytes.has_value()) return Bad(fmt::format("token_bytes of vocab entry {} is no base64 text", index));
  pieces->push_back(*std::move(bytes));
  return Status();
}

struct SpecialIds {
  std::optional<int32_t> bos, eos, pad, word;
};

Result<SpecialIds> ReadSpecials(const Json& root, int64_t special_count) {
  const Json* list = root.Find("special_tokens");
  if (list == nullptr || list->AsArray() == nullptr) {
    return Bad("special_tokens is missing; this is not the tokenizer of Voxtral-Mini-4B-Realtime-2602");
  }
  SpecialIds ids;
  for (const Json& entry : *list->AsArray()) {
    const Json* name = entry.Find("token_str");
    const std::string* text = name != nullptr ? name->AsString() : nullptr;
    if (text == nullptr) return Bad("a special token has no token_str");
    Result<int64_t> rank = ReadInt(entry, "special_tokens", "rank", 0, special_count - 1);
    if (!rank.ok()) return rank.status();
    std::optional<int32_t>* slot = *text == "<s>"                ? &ids.bos
                                   : *text == "</s>"             ? &ids.eos
                                   : *text == "[STREAMING_PAD]"  ? &ids.pad
                                   : *text == "[STREAMING_WORD]" ? &ids.word
                                                                 : nullptr;
    if (slot == nullptr) continue;
    if (slot->has_value()) return Bad(fmt::format("special token {} occurs twice", *text));
    *slot = static_cast<int32_t>(*rank);
  }
  const char* missing = !ids.bos.has_value()   ? "<s>"
                        : !ids.eos.has_value() ? "</s>"
                        : !ids.pad.has_value() ? "[STREAMING_PAD]"
                                               : nullptr;
  if (missing != nullptr) {
    return Bad(fmt::format("special token {} is missing; this is not the tokenizer of Voxtral-Mini-4B-Realtime-2602",
                           missing));
  }
  return ids;
}

struct AudioSection {
  int left_pad_tokens = 32;
  int default_delay_ms = 480;
};

Result<AudioSection> ReadAudio(const Json& root) {
  const Json* audio = root.Find("audio");
  if (audio == nullptr || !audio->is_object()) {
    return Bad("the audio section is missing; this is the tokenizer of a text model");
  }
  AudioSection section;
  const auto has = [&](const char* key) {
    const Json* value = audio->Find(key);
    return value != nullptr && !value->is_null();
  };
  if (has("streaming_n_left_pad_tokens")) {
    VOXRT_ASSIGN_OR_RETURN(const int64_t pad, ReadInt(*audio, "audio", "streaming_n_left_pad_tokens", 1, 4096));
    section.left_pad_tokens = static_cast<int>(pad);
  }
  if (has("transcription_delay_ms")) {
    const std::optional<double> ms = audio->Find("transcription_delay_ms")->AsDouble();
    if (!ms.has_value() || !(*ms >= 80 && *ms <= 2400) || std::fmod(*ms, 80) != 0) {
      return Bad("audio.transcription_delay_ms is no multiple of 80 from 80 to 2400");
    }
    section.default_delay_ms = static_cast<int>(*ms);
  }
  return section;
}

}  // namespace

Result<Tekken> Tekken::Parse(std::string_view tekken_json) {
  Tekken tekken;
  const auto take = [&](size_t index, const Json& entry) { return ReadPiece(index, entry, &tekken.pieces_); };
  Result<Json> root = base::ParseJsonStreaming(tekken_json, {}, "vocab", take);
  if (!root.ok()) {
    return root.status().code() == StatusCode::kInvalidModel ? root.status() : Bad(root.status().message());
  }
  if (!root->is_object()) return Bad(fmt::format("found {}, expected an object", root->TypeName()));
  const Json* config = root->Find("config");
  if (config == nullptr) return Bad("the config section is missing");
  VOXRT_ASSIGN_OR_RETURN(const int64_t vocabulary, ReadInt(*config, "config", "default_vocab_size", 1, kMaxVocabulary));
  VOXRT_ASSIGN_OR_RETURN(const int64_t special,
                         ReadInt(*config, "config", "default_num_special_tokens", 1, vocabulary));
  VOXRT_ASSIGN_OR_RETURN(const SpecialIds ids, ReadSpecials(*root, special));
  VOXRT_ASSIGN_OR_RETURN(const AudioSection audio, ReadAudio(*root));
  if (tekken.pieces_.empty()) return Bad("vocab is missing or empty");

  const auto used = static_cast<size_t>(vocabulary - special);
  if (tekken.pieces_.size() > used) tekken.pieces_.resize(used);
  tekken.vocab_size_ = static_cast<int>(vocabulary);
  tekken.special_count_ = static_cast<int>(special);
  tekken.bos_ = *ids.bos;
  tekken.eos_ = *ids.eos;
  tekken.pad_ = *ids.pad;
  tekken.word_ = ids.word;
  tekken.left_pad_tokens_ = audio.left_pad_tokens;
  tekken.default_delay_ms_ = audio.default_delay_ms;
  return tekken;
}

}  // namespace voxrt::text
