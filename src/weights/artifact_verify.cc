#include "weights/artifact_verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "base/sha.h"
#include "base/thread_pool.h"
#include "weights/artifact_metadata.h"
#include "weights/checkpoint_source.h"

namespace voxrt::weights {
namespace {

std::span<const std::byte> BytesOf(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  return file.file->bytes().subspan(file.header.data_offset + static_cast<size_t>(entry.begin),
                                    static_cast<size_t>(entry.end - entry.begin));
}

// SHA-256 of every tensor in file order, voxrt.sha256 left out. The largest are begun first: hashes of one tensor
// cannot be shared out.
std::vector<std::string> HashTensors(const SafetensorsFile& file, int threads) {
  std::vector<const SafetensorsEntry*> entries;
  for (const SafetensorsEntry& entry : file.header.entries) {
    if (entry.name != kArtifactHash) entries.push_back(&entry);
  }
  std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return entries[a]->end - entries[a]->begin > entries[b]->end - entries[b]->begin;
  });
  std::vector<std::string> hashes(entries.size());
  std::atomic<size_t> next = 0;
  base::ThreadPool pool(threads);
  pool.Run([&](int, int) {
    for (size_t i = next++; i < order.size(); i = next++) {
      hashes[order[i]] = base::Sha256Hex(BytesOf(file, *entries[order[i]]));
    }
  });
  return hashes;
}

Status VerifyFile(const SafetensorsFile& file, int threads) {
  const auto found = std::find_if(file.header.entries.begin(), file.header.entries.end(),
                                  [](const SafetensorsEntry& entry) { return entry.name == kArtifactHash; });
  if (found == file.header.entries.end()) {
    return Status(StatusCode::kInvalidModel,
                  fmt::format("{}: the artifact states no hash of its contents; export it again", file.file->path()));
  }
  const std::span<const std::byte> bytes = BytesOf(file, *found);
  const std::string_view stated(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string actual = CombineTensorHashes(HashTensors(file, threads));
  if (file.file->changed())
    return Status(StatusCode::kModelFileChanged, file.file->path() + " became shorter while it was read");
  if (actual == stated) return {};
  return Status(StatusCode::kInvalidModel,
                fmt::format("{}: the contents have the hash {}, not the one that the artifact states: the file is "
                            "damaged; copy or export it again",
                            file.file->path(), actual));
}

}  // namespace

Status VerifyArtifact(const std::string& path, const std::string& data_path, int threads) {
  VOXRT_ASSIGN_OR_RETURN(const SafetensorsFile file, OpenSafetensors(path));
  if (!IsArtifact(file.header)) {
    return Status(StatusCode::kInvalidModel,
                  fmt::format("{} was not written by `voxrt export` and states no hash of its contents", path));
  }
  VOXRT_RETURN_IF_ERROR(VerifyFile(file, threads));
  Result<ArtifactMetadata> metadata = ParseArtifactMetadata(file.header);
  if (!metadata.ok()) return WithPath(path, metadata.status());
  if (!metadata->data.has_value()) return {};
  VOXRT_ASSIGN_OR_RETURN(const SafetensorsFile data, OpenSafetensors(DataPath(path, data_path, *metadata->data)));
  return VerifyFile(data, threads);
}

}  // namespace voxrt::weights
