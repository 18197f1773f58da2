#include "worker/checkpoint/checkpoint_writer.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/checkpoint_file_check.h"

namespace lockstep {
namespace {

std::string DirectoryFor(const std::string& root, std::int64_t step) {
  return absl::StrCat(root, "/", StepDirectory(step));
}

// A manifest that is there vouches for files that must not change any more.
absl::Status CheckNotComplete(const FileSystem& files, const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kManifestFile);
  const absl::Status opened = files.Open(path).status();
  if (absl::IsNotFound(opened)) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(opened);
  return absl::AlreadyExistsError(absl::StrCat(
      path, " exists; expected a step without a checkpoint, so remove that one first"));
}

// Directories in which names can become durable.
absl::Status MakeDirectories(FileSystem& files, const std::string& root,
                             const std::string& directory) {
  for (const std::string& path : {root, directory}) {
    LOCKSTEP_RETURN_IF_ERROR(files.MakeDirectory(path));
    LOCKSTEP_RETURN_IF_ERROR(files.SyncDirectory(DirectoryOf(path)));
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointFile> Write(FileSystem& files, const std::string& root,
                                     const CheckpointId& id, std::string name,
                                     const SafetensorsMetadata& metadata,
                                     const std::vector<FileTensor>& tensors) {
  const std::string directory = DirectoryFor(root, id.step);
  LOCKSTEP_RETURN_IF_ERROR(CheckNotComplete(files, directory));
  LOCKSTEP_RETURN_IF_ERROR(MakeDirectories(files, root, directory));
  LOCKSTEP_ASSIGN_OR_RETURN(FileSum sum,
                            WriteSafetensors(files, absl::StrCat(directory, "/", name),
                                             WriterTag(id), metadata, tensors));
  return CheckpointFile{.name = std::move(name), .sum = std::move(sum)};
}

}  // namespace

absl::StatusOr<CheckpointFile> WriteShard(FileSystem& files, const std::string& root,
                                          const CheckpointId& id, const ShardPlan& plan,
                                          const std::vector<CheckpointSlot>& slots, int rank,
                                          const ShardData& data) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(plan));
  const int world_size = static_cast<int>(plan.shards.size());
  if (rank < 0 || rank >= world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("a shard of rank ", rank, "; expected 0 to ", world_size - 1));
  }
  std::vector<std::span<const std::byte>> bytes;
  for (const std::span<const float> slot : data.slots) bytes.push_back(std::as_bytes(slot));
  bytes.insert(bytes.end(), data.parameters.begin(), data.parameters.end());
  if (data.slots.size() != slots.size() || data.parameters.size() != plan.blocks.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the shard of rank ", rank, " has ", data.slots.size(), " slots and ",
        data.parameters.size(), " blocks of parameters; expected ", slots.size(), " and ",
        plan.blocks.size()));
  }
  std::vector<FileTensor> tensors;
  for (TensorSpec& spec : ShardTensors(plan, slots, rank)) {
    tensors.push_back({.spec = std::move(spec), .bytes = bytes[tensors.size()]});
  }
  return Write(files, root, id, ShardFile(rank, world_size), ShardMetadata(id, plan, rank),
               tensors);
}

absl::StatusOr<CheckpointFile> WriteReplicated(FileSystem& files, const std::string& root,
                                               const CheckpointId& id,
                                               const std::vector<FileTensor>& tensors) {
  return Write(files, root, id, kReplicatedFile, ReplicatedMetadata(id), tensors);
}

absl::Status Commit(FileSystem& files, const std::string& root,
                    const CheckpointManifest& manifest) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ManifestToText(manifest));
  const std::string directory = DirectoryFor(root, manifest.id.step);
  LOCKSTEP_RETURN_IF_ERROR(CheckNotComplete(files, directory));
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const std::string path = absl::StrCat(directory, "/", manifest.files[i].name);
    LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsFile file,
                              SafetensorsFile::Open(files, path, nullptr));
    LOCKSTEP_RETURN_IF_ERROR(CheckFileOf(manifest, i, file, path));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<AtomicFile> file,
      AtomicFile::Create(files, absl::StrCat(directory, "/", kManifestFile),
                         WriterTag(manifest.id)));
  LOCKSTEP_RETURN_IF_ERROR(file->Append(text));
  return file->Commit().status();
}

}  // namespace lockstep
