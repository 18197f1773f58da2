#include "worker/checkpoint/checkpoint_file_check.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "worker/checkpoint/checkpoint_layout.h"

namespace lockstep {
namespace {

absl::Status Differs(const std::string& path, absl::string_view what, absl::string_view found,
                     absl::string_view expected) {
  return absl::DataLossError(absl::StrCat("file ", path, ": ", what, " is ", found, "; expected ",
                                          expected, ". It is not the file that was written"));
}

}  // namespace

absl::Status CheckFileOf(const CheckpointManifest& manifest, std::size_t index,
                         const SafetensorsFile& file, const std::string& path) {
  const FileSum& sum = manifest.files[index].sum;
  if (file.bytes() != sum.bytes) {
    return Differs(path, "its size in bytes", absl::StrCat(file.bytes()), absl::StrCat(sum.bytes));
  }
  const int rank = static_cast<int>(index);
  const bool is_shard = index < manifest.plan.shards.size();
  const SafetensorsMetadata metadata = is_shard ? ShardMetadata(manifest.id, manifest.plan, rank)
                                                : ReplicatedMetadata(manifest.id);
  for (const auto& [name, expected] : metadata) {
    const auto at = file.header().metadata.find(name);
    const bool has = at != file.header().metadata.end();
    if (has && at->second == expected) continue;
    return Differs(path, name, has ? Quoted(at->second) : "missing", Quoted(expected));
  }
  const std::vector<TensorSpec> tensors =
      is_shard ? ShardTensors(manifest.plan, manifest.slots, rank)
               : ReplicatedTensors(manifest.model);
  for (const TensorSpec& expected : tensors) {
    const SafetensorsEntry* entry = file.header().Find(expected.name);
    if (entry != nullptr && entry->tensor == expected) continue;
    return Differs(path, absl::StrCat("tensor ", Quoted(expected.name)),
                   entry == nullptr ? "missing" : entry->tensor.ToString(), expected.ToString());
  }
  if (file.header().entries.size() == tensors.size()) return absl::OkStatus();
  return Differs(path, "the number of tensors", absl::StrCat(file.header().entries.size()),
                 absl::StrCat(tensors.size()));
}

}  // namespace lockstep
