#include "worker/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/checkpoint_file_check.h"
#include "worker/checkpoint/checkpoint_layout.h"

namespace lockstep {

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(const FileSystem& files,
                                                                         const std::string& root,
                                                                         std::int64_t step) {
  LOCKSTEP_ASSIGN_OR_RETURN(CheckpointManifest manifest, ReadManifest(files, root, step));
  return std::unique_ptr<CheckpointReader>(new CheckpointReader(
      files, absl::StrCat(root, "/", StepDirectory(step)), std::move(manifest)));
}

CheckpointReader::CheckpointReader(const FileSystem& files, std::string directory,
                                   CheckpointManifest manifest)
    : files_(files),
      directory_(std::move(directory)),
      manifest_(std::move(manifest)),
      verified_(manifest_.files.size()) {}

absl::Status CheckpointReader::CheckFiles() {
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(FileAt(i).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<const SafetensorsFile*> CheckpointReader::FileAt(std::size_t index) {
  if (open_ && open_index_ == index) return &*open_;
  open_.reset();
  const CheckpointFile& file = manifest_.files[index];
  const std::string path = absl::StrCat(directory_, "/", file.name);
  LOCKSTEP_ASSIGN_OR_RETURN(
      SafetensorsFile opened,
      SafetensorsFile::Open(files_, path, verified_[index] ? nullptr : &file.sum));
  LOCKSTEP_RETURN_IF_ERROR(CheckFileOf(manifest_, index, opened, path));
  verified_[index] = true;
  open_.emplace(std::move(opened));
  open_index_ = index;
  return &*open_;
}

absl::Status CheckpointReader::ReadFlat(const std::string& tensor, const Shard& whole,
                                        std::int64_t begin, std::int64_t element_bytes,
                                        std::span<std::byte> out) {
  const std::int64_t bytes = static_cast<std::int64_t>(out.size());
  const std::int64_t elements = bytes / element_bytes;
  if (begin < whole.begin || begin > whole.end || elements > whole.end - begin ||
      bytes % element_bytes != 0) {
    return absl::OutOfRangeError(absl::StrCat(
        bytes, " bytes of ", tensor, " from element ", begin, " on; expected whole elements in [",
        whole.begin, ", ", whole.end, ")"));
  }
  const std::int64_t end = begin + elements;
  const std::vector<Shard>& shards = manifest_.plan.shards;
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    const Shard wanted = PartOf(shards[rank], begin, end);
    if (wanted.elements() == 0) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsFile* file, FileAt(rank));
    const Shard held = PartOf(shards[rank], whole.begin, whole.end);
    LOCKSTEP_RETURN_IF_ERROR(file->Read(
        *file->header().Find(tensor), (wanted.begin - held.begin) * element_bytes,
        out.subspan(static_cast<std::size_t>((wanted.begin - begin) * element_bytes),
                    static_cast<std::size_t>(wanted.elements() * element_bytes))));
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadSlot(absl::string_view slot, std::int64_t begin,
                                        std::span<float> out) {
  const auto at = std::ranges::find(manifest_.slots, slot, &CheckpointSlot::name);
  if (at == manifest_.slots.end()) {
    return absl::NotFoundError(
        absl::StrCat("checkpoint ", directory_, " has no state slot ", Quoted(slot)));
  }
  return ReadFlat(SlotTensor(slot), {.begin = at->begin, .end = manifest_.plan.flat_elements},
                  begin, sizeof(float), std::as_writable_bytes(out));
}

absl::Status CheckpointReader::ReadParameters(std::size_t block, std::int64_t begin,
                                              std::span<std::byte> out) {
  if (block >= manifest_.plan.blocks.size()) {
    return absl::OutOfRangeError(absl::StrCat("block ", block, " of checkpoint ", directory_,
                                              "; expected less than ",
                                              manifest_.plan.blocks.size()));
  }
  const Block& of = manifest_.plan.blocks[block];
  return ReadFlat(ParametersTensor(of.dtype), {.begin = of.begin, .end = of.end}, begin,
                  ElementBytes(of.dtype), out);
}

absl::Status CheckpointReader::ReadReplicated(absl::string_view name, std::span<std::byte> out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsFile* file, FileAt(manifest_.files.size() - 1));
  const SafetensorsEntry* entry = file->header().Find(name);
  if (entry == nullptr) {
    return absl::NotFoundError(absl::StrCat("checkpoint ", directory_,
                                            " has no replicated tensor ", Quoted(name)));
  }
  if (static_cast<std::int64_t>(out.size()) != entry->tensor.bytes()) {
    return absl::OutOfRangeError(absl::StrCat(out.size(), " bytes for tensor ", Quoted(name),
                                              "; expected ", entry->tensor.bytes()));
  }
  return file->Read(*entry, 0, out);
}

}  // namespace lockstep
