#include "worker/engine/shard_copy.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

constexpr std::int64_t kFloatBytes = sizeof(float);

Shard Common(const Shard& a, const Shard& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Of memory that is a multiple of 4 bytes, as aligned shards are.
std::span<const float> Words(const std::byte* data, std::int64_t bytes) {
  return {reinterpret_cast<const float*>(data), static_cast<std::size_t>(bytes / kFloatBytes)};
}

}  // namespace

absl::Status PlaceCopy(const ShardPlan& plan, std::span<const BlockArenas> blocks, bool in_place,
                       DeviceMath* math, ShardCopy& copy) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Arena& parameters = blocks[i].parameters;
    ShardCopy::Part part = {
        .elements = blocks[i].shards[copy.owner],
        .place = std::max<std::int64_t>(plan.blocks[i].begin - copy.elements.begin, 0)};
    if (in_place) {
      part.parameters = parameters.at(part.elements.begin);
    } else if (part.elements.elements() > 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          std::shared_ptr<float[]> memory,
          math->Allocate(part.elements.elements() * ElementBytes(parameters.dtype) / kFloatBytes));
      part.parameters = reinterpret_cast<std::byte*>(memory.get());
      copy.memory.push_back(std::move(memory));
    }
    copy.parts.push_back(part);
  }
  return absl::OkStatus();
}

absl::Status RoomForSums(std::span<const BlockArenas> blocks, DeviceMath* math, ShardCopy& copy) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    ShardCopy::Part& part = copy.parts[i];
    const std::int64_t elements = part.elements.elements();
    if (elements == 0 || !part.sums.empty()) continue;
    const Arena& gradients = blocks[i].gradients;
    if (gradients.dtype == DType::kFloat32) {
      part.sums = gradients.floats().subspan(part.elements.begin, elements);
      continue;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<float[]> memory, math->Allocate(elements));
    part.sums = {memory.get(), static_cast<std::size_t>(elements)};
    copy.memory.push_back(std::move(memory));
  }
  return absl::OkStatus();
}

absl::Status TakeParameters(std::span<const BlockArenas> blocks, DeviceMath* math,
                            ShardCopy& copy) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const ShardCopy::Part& part = copy.parts[i];
    if (part.elements.elements() == 0) continue;
    const Arena& arena = blocks[i].parameters;
    LOCKSTEP_RETURN_IF_ERROR(
        math->Copy(Words(arena.at(part.elements.begin),
                         part.elements.elements() * ElementBytes(arena.dtype)),
                   reinterpret_cast<float*>(part.parameters)));
  }
  return absl::OkStatus();
}

absl::Status UpdateCopy(ShardCopy& copy, std::span<const BlockArenas> blocks, float factor) {
  copy.optimizer->BeginStep(factor);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const ShardCopy::Part& part = copy.parts[i];
    if (part.elements.elements() == 0) continue;
    copy.optimizer->Update(part.place, part.sums, blocks[i].parameters.dtype, part.parameters);
  }
  return copy.optimizer->EndStep();
}

std::vector<TensorView> ViewsOf(const ShardPlan& plan, const OptimizerConfig& optimizer,
                                const Shard& elements, ShardCopy* copy) {
  std::vector<TensorView> views;
  const auto add = [&](const std::string& what, const Shard& part, DType dtype, std::byte* data) {
    if (part.elements() == 0) return;
    views.push_back({.spec = {.name = absl::StrCat(what, "[", part.begin, ":", part.end, "]"),
                              .dtype = dtype,
                              .shape = {part.elements()}},
                     .data = data,
                     .on_device = true});
  };
  std::vector<StateSlot> slots;
  if (copy != nullptr) slots = copy->optimizer->state();
  const auto in_slot = [&](std::size_t slot, const Shard& part) -> std::byte* {
    if (copy == nullptr || part.elements() == 0) return nullptr;
    LOCKSTEP_CHECK(slot < slots.size());
    const std::int64_t at = part.begin - copy->elements.begin - slots[slot].begin;
    return reinterpret_cast<std::byte*>(slots[slot].values.data() + at);
  };
  const std::vector<ElementState> states = ElementStatesOf(optimizer);
  for (std::size_t i = 0; i < states.size(); ++i) {
    add(states[i].name, elements, DType::kFloat32, in_slot(i, elements));
  }
  for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
    const Block& block = plan.blocks[i];
    const Shard part = Common(elements, {block.begin, block.end});
    if (block.dtype != DType::kFloat32) {
      add(std::string(kMasters), part, DType::kFloat32, in_slot(states.size(), part));
    }
    std::byte* parameters = nullptr;
    if (copy != nullptr && part.elements() > 0) {
      const std::int64_t at = part.begin - block.begin - copy->parts[i].elements.begin;
      parameters = copy->parts[i].parameters + at * ElementBytes(block.dtype);
    }
    add("parameters", part, block.dtype, parameters);
  }
  return views;
}

}  // namespace lockstep
