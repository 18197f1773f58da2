#include "worker/checkpoint/checkpoint_layout.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace lockstep {
namespace {

constexpr char kStepPrefix[] = "step-";

SafetensorsMetadata MetadataOf(const CheckpointId& id, absl::string_view format) {
  return {{"format", std::string(format)},
          {"job", id.job},
          {"epoch", absl::StrCat(id.epoch)},
          {"step", absl::StrCat(id.step)}};
}

}  // namespace

std::string StepDirectory(std::int64_t step) {
  return absl::StrFormat("%s%012d", kStepPrefix, step);
}

std::optional<std::int64_t> StepOfDirectory(absl::string_view name) {
  std::int64_t step = 0;
  if (!absl::SimpleAtoi(absl::StripPrefix(name, kStepPrefix), &step) || step < 0) {
    return std::nullopt;
  }
  // One name for each step: no signs, no other number of zeros.
  if (name != StepDirectory(step)) return std::nullopt;
  return step;
}

std::string ShardFile(int rank, int world_size) {
  return absl::StrFormat("shard-%05d-of-%05d.safetensors", rank, world_size);
}

std::string WriterTag(const CheckpointId& id) { return absl::StrCat("epoch-", id.epoch); }

Shard PartOf(const Shard& shard, std::int64_t begin, std::int64_t end) {
  return {.begin = std::clamp(begin, shard.begin, shard.end),
          .end = std::clamp(end, shard.begin, shard.end)};
}

std::string SlotTensor(absl::string_view slot) { return absl::StrCat("state.", slot); }

std::string ParametersTensor(DType dtype) { return absl::StrCat("parameters.", DTypeName(dtype)); }

std::vector<TensorSpec> ShardTensors(const ShardPlan& plan, const std::vector<CheckpointSlot>& slots,
                                     int rank) {
  const Shard& shard = plan.shards[rank];
  std::vector<TensorSpec> tensors;
  for (const CheckpointSlot& slot : slots) {
    tensors.push_back({.name = SlotTensor(slot.name),
                       .dtype = DType::kFloat32,
                       .shape = {PartOf(shard, slot.begin, plan.flat_elements).elements()}});
  }
  for (const Block& block : plan.blocks) {
    tensors.push_back({.name = ParametersTensor(block.dtype),
                       .dtype = block.dtype,
                       .shape = {PartOf(shard, block.begin, block.end).elements()}});
  }
  return tensors;
}

SafetensorsMetadata ShardMetadata(const CheckpointId& id, const ShardPlan& plan, int rank) {
  SafetensorsMetadata metadata = MetadataOf(id, "lockstep.shard.1");
  metadata["rank"] = absl::StrCat(rank);
  metadata["world_size"] = absl::StrCat(plan.shards.size());
  metadata["flat_begin"] = absl::StrCat(plan.shards[rank].begin);
  metadata["flat_end"] = absl::StrCat(plan.shards[rank].end);
  metadata["flat_elements"] = absl::StrCat(plan.flat_elements);
  return metadata;
}

std::vector<TensorSpec> ReplicatedTensors(const Manifest& model) {
  std::vector<TensorSpec> tensors;
  for (const ParameterSpec& parameter : model.parameters) {
    if (!parameter.trainable) tensors.push_back(parameter.tensor);
  }
  for (const TensorSpec& buffer : model.buffers) {
    if (buffer.dtype != DType::kUnspecified) tensors.push_back(buffer);
  }
  return tensors;
}

SafetensorsMetadata ReplicatedMetadata(const CheckpointId& id) {
  return MetadataOf(id, "lockstep.replicated.1");
}

}  // namespace lockstep
