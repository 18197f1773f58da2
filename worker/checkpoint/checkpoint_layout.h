// What the files of a checkpoint are called and what is in each: README.md. Pure.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_LAYOUT_H_
#define LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/manifest/manifest.h"
#include "common/sharding/shard_plan.h"
#include "worker/checkpoint/safetensors.h"

namespace lockstep {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kReplicatedFile[] = "replicated.safetensors";

// Which checkpoint a file is of.
struct CheckpointId {
  std::string job;
  std::int64_t epoch = 0;  // that wrote it
  std::int64_t step = 0;   // steps done

  bool operator==(const CheckpointId&) const = default;
};

// An optimizer's state of one float32 for each of the elements [begin, flat_elements) of the flat
// space: "exp_avg", "master", ...
struct CheckpointSlot {
  std::string name;
  std::int64_t begin = 0;

  bool operator==(const CheckpointSlot&) const = default;
};

// "step-000000000123", and back; nothing for other names.
std::string StepDirectory(std::int64_t step);
std::optional<std::int64_t> StepOfDirectory(absl::string_view name);

// "shard-00000-of-00004.safetensors"
std::string ShardFile(int rank, int world_size);

// What writers of the same file, of different epochs, are told apart by.
std::string WriterTag(const CheckpointId& id);

// The part of [begin, end) that lies in `shard`, all in the flat space; empty, somewhere in the
// shard, if there is none.
Shard PartOf(const Shard& shard, std::int64_t begin, std::int64_t end);

// The tensors of a shard's file: each slot, "state.exp_avg", then the parameters of each block,
// "parameters.bfloat16"; the shard's part of them, one-dimensional, of 0 elements where there is
// none.
std::string SlotTensor(absl::string_view slot);
std::string ParametersTensor(DType dtype);
std::vector<TensorSpec> ShardTensors(const ShardPlan& plan, const std::vector<CheckpointSlot>& slots,
                                     int rank);
SafetensorsMetadata ShardMetadata(const CheckpointId& id, const ShardPlan& plan, int rank);

// The tensors of the replicated file, by the model's names: frozen parameters, and buffers that
// hold plain values.
std::vector<TensorSpec> ReplicatedTensors(const Manifest& model);
SafetensorsMetadata ReplicatedMetadata(const CheckpointId& id);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_LAYOUT_H_
