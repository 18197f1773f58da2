// How a checkpoint is written: each rank its shard, one rank the replicated file, and when all
// are there one rank the manifest, which makes it a checkpoint. README.md has the layout.
//
// Ranks do not talk here: what WriteShard() returns is carried to the rank that commits by the
// caller. Functions block on the file system; different files may be written at once.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_
#define LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sharding/shard_plan.h"
#include "worker/checkpoint/checkpoint_layout.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/safetensors_file.h"

namespace lockstep {

// What one rank owns, in host memory. The sizes are those of ShardTensors().
struct ShardData {
  std::vector<std::span<const float>> slots;           // in the order of the slots
  std::vector<std::span<const std::byte>> parameters;  // by block of the plan
};

// All take `root`, the directory that holds a job's checkpoints, of which only the last component
// may be missing. Durable when they return. Errors:
//   AlreadyExists: the step has a manifest; RemoveCheckpoint() it first to write it anew.
//   InvalidArgument: sizes, types or names that do not fit; nothing was written.
//   ResourceExhausted: no space left. Or others of FileSystem.
// After an error the step is no checkpoint; what was written of it is overwritten by the next try
// or removed with the directory.
absl::StatusOr<CheckpointFile> WriteShard(FileSystem& files, const std::string& root,
                                          const CheckpointId& id, const ShardPlan& plan,
                                          const std::vector<CheckpointSlot>& slots, int rank,
                                          const ShardData& data);

// `tensors`: those of ReplicatedTensors() of the model, in any order.
absl::StatusOr<CheckpointFile> WriteReplicated(FileSystem& files, const std::string& root,
                                               const CheckpointId& id,
                                               const std::vector<FileTensor>& tensors);

// Checks that the files are there, of that size, that checkpoint and that content by their
// headers, and then writes the manifest. Errors also: DataLoss names the file that is not what
//   the manifest says; NotFound the one that is missing.
absl::Status Commit(FileSystem& files, const std::string& root, const CheckpointManifest& manifest);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_
