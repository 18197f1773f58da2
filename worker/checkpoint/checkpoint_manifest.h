// CheckpointManifest: all that a checkpoint is besides tensors, as manifest.json holds it.
//
// Pure values; thread-compatible.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_MANIFEST_H_
#define LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/manifest/manifest.h"
#include "common/sharding/shard_plan.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/checkpoint_layout.h"
#include "worker/optim/optimizer.h"

namespace lockstep {

// Of manifest.json. Readers refuse other versions.
inline constexpr std::int64_t kCheckpointFormat = 1;

inline constexpr int kMaxJobBytes = 1024;
inline constexpr int kMaxSlots = 16;

struct CheckpointFile {
  std::string name;  // in the checkpoint's directory
  FileSum sum;

  bool operator==(const CheckpointFile&) const = default;
};

struct CheckpointManifest {
  CheckpointId id;
  std::int64_t samples = 0;  // of all ranks and steps
  std::int64_t policy_revision = 0;
  std::string policy;  // as the caller writes policies
  double learning_rate = 0;  // in force; the optimizer's lr is what it began with
  OptimizerConfig optimizer;
  std::int64_t optimizer_steps = 0;  // that its state has seen
  Manifest model;                    // model.optimizer is Describe(optimizer)
  ShardPlan plan;
  std::vector<CheckpointSlot> slots;
  std::vector<CheckpointFile> files;  // shards by rank, then the replicated file
};

// Errors: InvalidArgument: a number is negative, a name is empty, twice or not printable, model,
//   optimizer or plan are not valid or do not belong together, or files are not the plan's; says
//   what is and what was expected.
absl::Status Validate(const CheckpointManifest& manifest);

// JSON whose last member is a checksum of all text before it. Errors: those of Validate().
absl::StatusOr<std::string> ManifestToText(const CheckpointManifest& manifest);

// Errors: DataLoss: not what ManifestToText() gives, or changed since.
//   FailedPrecondition: of another format version.
absl::StatusOr<CheckpointManifest> ManifestFromText(absl::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_MANIFEST_H_
