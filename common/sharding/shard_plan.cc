#include "common/sharding/shard_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

// Rounds up to a multiple of kAlignElements; false if that does not fit.
bool RoundUp(std::int64_t elements, std::int64_t* rounded) {
  if (__builtin_add_overflow(elements, kAlignElements - 1, rounded)) return false;
  *rounded -= *rounded % kAlignElements;
  return true;
}

// Whole cache lines are dealt out; the first ranks take one more each while the
// rest lasts.
std::vector<Shard> Deal(std::int64_t flat_elements, int world_size) {
  const std::int64_t lines = flat_elements / kAlignElements;
  const std::int64_t each = lines / world_size;
  const std::int64_t rest = lines % world_size;
  const auto begin = [&](std::int64_t rank) {
    return (each * rank + std::min(rank, rest)) * kAlignElements;
  };
  std::vector<Shard> shards;
  shards.reserve(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    shards.push_back({.begin = begin(rank), .end = begin(rank + 1)});
  }
  return shards;
}

// The long type first: what needs masters is then one range of each shard.
constexpr DType kBlockOrder[] = {DType::kFloat32, DType::kBfloat16, DType::kFloat16};

bool IsAligned(std::int64_t elements) { return elements % kAlignElements == 0; }

absl::Status CheckBlocks(const ShardPlan& plan) {
  std::int64_t end = 0;
  for (const Block& block : plan.blocks) {
    if (block.begin != end || block.end <= block.begin || !IsAligned(block.end) ||
        !IsTrainable(block.dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the block of ", DTypeName(block.dtype), " is [", block.begin, ", ",
                       block.end, "); expected one of a type that can be trained, which begins at ",
                       end, " and ends at a multiple of ", kAlignElements, " behind that"));
    }
    end = block.end;
  }
  if (end == plan.flat_elements) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the blocks end at ", end,
                                                 ", the flat space at ", plan.flat_elements,
                                                 "; expected the same"));
}

}  // namespace

std::uint64_t ShardPlan::Digest() const {
  Digester digester;
  digester.Add(flat_elements).Add(static_cast<std::int64_t>(blocks.size()));
  for (const Block& block : blocks) {
    digester.Add(static_cast<std::int64_t>(block.dtype)).Add(block.begin).Add(block.end);
  }
  digester.Add(static_cast<std::int64_t>(placements.size()));
  for (const Placement& placement : placements) {
    digester.Add(absl::string_view(placement.name)).Add(placement.offset).Add(placement.elements);
  }
  digester.Add(static_cast<std::int64_t>(shards.size()));
  for (const Shard& shard : shards) digester.Add(shard.begin).Add(shard.end);
  return digester.Finish();
}

absl::StatusOr<ShardPlan> PlanShards(const Manifest& manifest, int world_size) {
  if (world_size < 1 || world_size > kMaxWorldSize) {
    return absl::InvalidArgumentError(absl::StrCat("cannot shard over ", world_size,
                                                   " ranks; 1 to ", kMaxWorldSize,
                                                   " are allowed"));
  }
  ShardPlan plan;
  for (const ParameterSpec& parameter : manifest.parameters) {
    const TensorSpec& tensor = parameter.tensor;
    if (!parameter.trainable || IsTrainable(tensor.dtype)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", Quoted(tensor.name), " is ", tensor.ToString(),
                     ", but only float32, bfloat16 and float16 parameters can be trained; convert "
                     "it or freeze it (requires_grad = false)"));
  }
  for (const DType dtype : kBlockOrder) {
    const std::int64_t begin = plan.flat_elements;
    for (const ParameterSpec& parameter : manifest.parameters) {
      const TensorSpec& tensor = parameter.tensor;
      if (!parameter.trainable || tensor.dtype != dtype) continue;
      const std::int64_t elements = tensor.elements();
      std::int64_t padded = 0;
      const std::int64_t offset = plan.flat_elements;
      if (!RoundUp(elements, &padded) ||
          __builtin_add_overflow(offset, padded, &plan.flat_elements)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the flat parameter space up to parameter ", Quoted(tensor.name), " (",
                         tensor.ToString(), ") has more elements than fit into 63 bits"));
      }
      plan.placements.push_back({.name = tensor.name, .offset = offset, .elements = elements});
    }
    if (plan.flat_elements > begin) {
      plan.blocks.push_back({.dtype = dtype, .begin = begin, .end = plan.flat_elements});
    }
  }
  plan.shards = Deal(plan.flat_elements, world_size);
  return plan;
}

absl::Status Validate(const ShardPlan& plan) {
  if (plan.flat_elements < 0 || !IsAligned(plan.flat_elements)) {
    return absl::InvalidArgumentError(absl::StrCat("the flat space has ", plan.flat_elements,
                                                   " elements; expected a multiple of ",
                                                   kAlignElements));
  }
  if (plan.shards.empty() || plan.shards.size() > kMaxWorldSize) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has ", plan.shards.size(),
                                                   " shards; 1 to ", kMaxWorldSize,
                                                   " are allowed"));
  }
  std::int64_t end = 0;
  for (std::size_t rank = 0; rank < plan.shards.size(); ++rank) {
    const Shard& shard = plan.shards[rank];
    if (shard.begin != end || shard.end < shard.begin || !IsAligned(shard.end)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the shard of rank ", rank, " is [", shard.begin, ", ", shard.end,
                       "); expected it to begin at ", end, " and to end at a multiple of ",
                       kAlignElements, " behind that"));
    }
    end = shard.end;
  }
  if (end != plan.flat_elements) {
    return absl::InvalidArgumentError(absl::StrCat("the shards end at ", end,
                                                   ", the flat space at ", plan.flat_elements,
                                                   "; expected the same"));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckBlocks(plan));
  std::int64_t free = 0;
  std::size_t at = 0;  // the block that the placement must lie in
  for (const Placement& placement : plan.placements) {
    while (at < plan.blocks.size() && plan.blocks[at].end <= placement.offset &&
           placement.elements > 0) {
      ++at;
    }
    const std::int64_t end = at < plan.blocks.size() ? plan.blocks[at].end : plan.flat_elements;
    if (placement.offset < free || !IsAligned(placement.offset) || placement.elements < 0 ||
        placement.offset > end || placement.elements > end - placement.offset) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", Quoted(placement.name), " is placed at ", placement.offset, " with ",
          placement.elements, " elements; expected an aligned place in [", free, ", ", end, ")"));
    }
    free = placement.offset + placement.elements;
  }
  return absl::OkStatus();
}

std::size_t BlockAt(const ShardPlan& plan, std::int64_t offset) {
  return std::ranges::find_if(plan.blocks,
                              [&](const Block& block) { return offset < block.end; }) -
         plan.blocks.begin();
}

std::vector<Shard> ShardsWithin(const ShardPlan& plan, const Block& block) {
  std::vector<Shard> shards;
  for (const Shard& shard : plan.shards) {
    shards.push_back({.begin = std::clamp(shard.begin, block.begin, block.end) - block.begin,
                      .end = std::clamp(shard.end, block.begin, block.end) - block.begin});
  }
  return shards;
}

}  // namespace lockstep
