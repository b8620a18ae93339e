#include "hub/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/json.h"

namespace voxrt::hub {
namespace {

using base::Json;
using base::QuoteForMessage;

constexpr size_t kMaxPathBytes = 512;
constexpr size_t kSha256Digits = 64;
constexpr size_t kSha1Digits = 40;

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// No absolute path, no "..", no empty part, nothing that a file system or a terminal treats specially.
bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes) return false;
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '\\' || c == ':' || c == 0x7f) return false;
  }
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

const RemoteFile* FindFile(const RepoListing& listing, std::string_view path) {
  const auto found = std::find_if(listing.files.begin(), listing.files.end(),
                                  [&](const RemoteFile& file) { return file.path == path; });
  return found == listing.files.end() ? nullptr : &*found;
}

std::string StringOf(const Json* value) {
  const std::string* text = value != nullptr ? value->AsString() : nullptr;
  return text != nullptr ? *text : std::string();
}

Status NotAListing(std::string_view what) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("the hub's reply is no repository listing ({}); check the endpoint", what));
}

Result<RemoteFile> ReadSibling(const Json& sibling) {
  RemoteFile file;
  file.path = StringOf(sibling.Find("rfilename"));
  if (!IsSafePath(file.path)) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("the repository lists the file name {}, which could leave the target folder; nothing was "
                              "downloaded",
                              QuoteForMessage(file.path)));
  }
  const Json* lfs = sibling.Find("lfs");
  const Json* size = lfs != nullptr && lfs->Find("size") != nullptr ? lfs->Find("size") : sibling.Find("size");
  if (size != nullptr) file.size = size->AsInt().value_or(-1);
  if (file.size < 0) file.size = -1;
  if (lfs != nullptr) {
    std::string sha256 = StringOf(lfs->Find("sha256"));
    if (sha256.empty()) sha256 = StringOf(lfs->Find("oid"));
    if (IsHex(sha256, kSha256Digits)) file.sha256 = sha256;
  } else if (std::string blob = StringOf(sibling.Find("blobId")); IsHex(blob, kSha1Digits)) {
    file.git_sha1 = blob;  // of an LFS file it names the pointer, not the contents
  }
  return file;
}

}  // namespace

Result<RepoListing> ParseRepoListing(std::string_view json) {
  Result<Json> parsed = base::ParseJson(json);
  if (!parsed.ok()) return NotAListing(parsed.status().message());
  RepoListing listing;
  listing.commit = StringOf(parsed->Find("sha"));
  if (!IsHex(listing.commit, kSha1Digits)) return NotAListing("no commit in \"sha\"");
  const Json* siblings = parsed->Find("siblings");
  const Json::Array* array = siblings != nullptr ? siblings->AsArray() : nullptr;
  if (array == nullptr) return NotAListing("no array \"siblings\"");
  for (const Json& sibling : *array) {
    VOXRT_ASSIGN_OR_RETURN(RemoteFile file, ReadSibling(sibling));
    if (FindFile(listing, file.path) != nullptr) return NotAListing("a file is listed twice");
    listing.files.push_back(std::move(file));
  }
  return listing;
}

Result<std::vector<RemoteFile>> SelectCheckpointFiles(const RepoListing& listing) {
  const auto take = [&](std::initializer_list<std::string_view> names, std::vector<RemoteFile>* out) {
    std::string missing;
    for (const std::string_view name : names) {
      if (const RemoteFile* file = FindFile(listing, name)) {
        out->push_back(*file);
      } else {
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
      }
    }
    return missing;
  };
  std::vector<RemoteFile> mistral;
  const std::string missing_mistral = take({"params.json", "tekken.json", "consolidated.safetensors"}, &mistral);
  if (missing_mistral.empty()) return mistral;
  std::vector<RemoteFile> hf;
  std::string missing_hf = take({"config.json", "tekken.json"}, &hf);
  for (const std::string_view optional : {"processor_config.json", "model.safetensors.index.json"}) {
    if (const RemoteFile* file = FindFile(listing, optional)) hf.push_back(*file);
  }
  bool weights = false;
  for (const RemoteFile& file : listing.files) {
    const std::string_view path = file.path;
    if (path.starts_with("model") && path.ends_with(".safetensors") && path.find('/') == std::string_view::npos) {
      hf.push_back(file);
      weights = true;
    }
  }
  if (!weights) missing_hf += fmt::format("{}model*.safetensors", missing_hf.empty() ? "" : ", ");
  if (missing_hf.empty()) return hf;
  return Status(
      StatusCode::kNotFound,
      fmt::format("the repository holds no checkpoint that voxrt reads: for Mistral's layout it lacks {}, for "
                  "Hugging Face's {}; name another repository or --revision",
                  missing_mistral, missing_hf));
}

bool IsRepoName(std::string_view repo) {
  const size_t slash = repo.find('/');
  if (slash == std::string_view::npos) return false;
  const auto good = [](std::string_view part) {
    return !part.empty() && part.size() <= 96 && part != "." && part != ".." &&
           std::all_of(part.begin(), part.end(), [](char c) {
             return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                    c == '_' || c == '.';
           });
  };
  return good(repo.substr(0, slash)) && good(repo.substr(slash + 1));
}

std::string EscapeForUrl(std::string_view text, bool keep_slash) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                       c == '_' || c == '.' || c == '~' || (keep_slash && c == '/');
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::optional<ContentRange> ParseContentRange(std::string_view header) {
  constexpr std::string_view kUnit = "bytes ";
  if (!header.starts_with(kUnit)) return std::nullopt;
  const char* at = header.data() + kUnit.size();
  const char* end = header.data() + header.size();
  const auto number = [&](int64_t* out, char closing) {
    const auto [stop, error] = std::from_chars(at, end, *out);
    const bool good =
        error == std::errc() && *out >= 0 && (closing == '\0' ? stop == end : stop != end && *stop == closing);
    at = good && closing != '\0' ? stop + 1 : stop;
    return good;
  };
  ContentRange range;
  if (!number(&range.first, '-') || !number(&range.last, '/') || !number(&range.total, '\0')) return std::nullopt;
  if (range.first > range.last || range.last >= range.total) return std::nullopt;
  return range;
}

void ApplyEtag(std::string_view etag, RemoteFile* file) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  if (IsHex(etag, kSha256Digits)) file->sha256 = etag;
  if (IsHex(etag, kSha1Digits)) file->git_sha1 = etag;
}

}  // namespace voxrt::hub
