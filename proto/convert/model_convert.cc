#include "proto/convert/model_convert.h"

#include <utility>

#include "common/base/status_macros.h"
#include "proto/convert/field.h"

namespace lockstep {
namespace {

using convert_internal::AtMostEntries;
using convert_internal::BadField;
using convert_internal::InField;

v1::TensorSpec ToProto(const TensorSpec& tensor) {
  v1::TensorSpec proto;
  proto.set_name(tensor.name);
  proto.set_dtype(static_cast<std::int32_t>(tensor.dtype));
  proto.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
  return proto;
}

absl::StatusOr<TensorSpec> FromProto(const v1::TensorSpec& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtMostEntries("shape", proto.shape_size(), kMaxDimensions));
  const std::optional<DType> dtype =
      proto.dtype() == 0 ? DType::kUnspecified : DTypeFromNumber(proto.dtype());
  if (!dtype.has_value()) {
    return BadField("dtype", absl::StrCat("is the unknown number ", proto.dtype(), " (tensor ",
                                          Quoted(proto.name()), ")"));
  }
  return TensorSpec{.name = proto.name(),
                    .dtype = *dtype,
                    .shape = {proto.shape().begin(), proto.shape().end()}};
}

}  // namespace

v1::Manifest ToProto(const Manifest& manifest) {
  v1::Manifest proto;
  for (const ParameterSpec& parameter : manifest.parameters) {
    v1::TensorSpec& added = *proto.add_parameters();
    added = ToProto(parameter.tensor);
    added.set_frozen(!parameter.trainable);
  }
  for (const TensorSpec& buffer : manifest.buffers) *proto.add_buffers() = ToProto(buffer);
  proto.set_optimizer(manifest.optimizer);
  return proto;
}

absl::StatusOr<Manifest> FromProto(const v1::Manifest& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtMostEntries("parameters", proto.parameters_size(), kMaxTensors));
  LOCKSTEP_RETURN_IF_ERROR(AtMostEntries("buffers", proto.buffers_size(), kMaxTensors));
  Manifest manifest;
  manifest.parameters.reserve(proto.parameters_size());
  for (int i = 0; i < proto.parameters_size(); ++i) {
    auto tensor = FromProto(proto.parameters(i));
    if (!tensor.ok()) return InField(absl::StrCat("parameters[", i, "]"), tensor.status());
    manifest.parameters.push_back(
        {.tensor = *std::move(tensor), .trainable = !proto.parameters(i).frozen()});
  }
  manifest.buffers.reserve(proto.buffers_size());
  for (int i = 0; i < proto.buffers_size(); ++i) {
    auto tensor = FromProto(proto.buffers(i));
    if (!tensor.ok()) return InField(absl::StrCat("buffers[", i, "]"), tensor.status());
    if (proto.buffers(i).frozen()) {
      return BadField(absl::StrCat("buffers[", i, "].frozen"), "is set; only parameters have it");
    }
    manifest.buffers.push_back(*std::move(tensor));
  }
  manifest.optimizer = proto.optimizer();
  LOCKSTEP_RETURN_IF_ERROR(Validate(manifest));
  return manifest;
}

v1::ShardPlan ToProto(const ShardPlan& plan) {
  v1::ShardPlan proto;
  proto.set_flat_elements(plan.flat_elements);
  for (const Placement& placement : plan.placements) {
    v1::ShardPlan::Placement& added = *proto.add_placements();
    added.set_name(placement.name);
    added.set_offset(placement.offset);
    added.set_elements(placement.elements);
  }
  for (const Shard& shard : plan.shards) {
    v1::ShardPlan::Range& added = *proto.add_shards();
    added.set_begin(shard.begin);
    added.set_end(shard.end);
  }
  for (const Block& block : plan.blocks) {
    v1::ShardPlan::Block& added = *proto.add_blocks();
    added.set_dtype(static_cast<std::int32_t>(block.dtype));
    added.set_begin(block.begin);
    added.set_end(block.end);
  }
  return proto;
}

absl::StatusOr<ShardPlan> FromProto(const v1::ShardPlan& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtMostEntries("placements", proto.placements_size(), kMaxTensors));
  LOCKSTEP_RETURN_IF_ERROR(AtMostEntries("shards", proto.shards_size(), kMaxWorldSize));
  LOCKSTEP_RETURN_IF_ERROR(AtMostEntries("blocks", proto.blocks_size(), kMaxBlocks));
  ShardPlan plan{.flat_elements = proto.flat_elements()};
  plan.placements.reserve(proto.placements_size());
  for (const v1::ShardPlan::Placement& placement : proto.placements()) {
    plan.placements.push_back({.name = placement.name(),
                               .offset = placement.offset(),
                               .elements = placement.elements()});
  }
  plan.shards.reserve(proto.shards_size());
  for (const v1::ShardPlan::Range& shard : proto.shards()) {
    plan.shards.push_back({.begin = shard.begin(), .end = shard.end()});
  }
  for (const v1::ShardPlan::Block& block : proto.blocks()) {
    plan.blocks.push_back({.dtype = DTypeFromNumber(block.dtype()).value_or(DType::kUnspecified),
                           .begin = block.begin(),
                           .end = block.end()});
  }
  LOCKSTEP_RETURN_IF_ERROR(Validate(plan));
  return plan;
}

}  // namespace lockstep
