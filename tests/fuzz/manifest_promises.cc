// The model that a worker announces: a v1::Manifest. The first byte says how the rest is one: j, x
// or w as in message_text.h, or t: each line is a part of it in text format, or left out.
//
// It is refused with InvalidArgument, or it is valid, survives the wire with the same digest, and
// for any number of ranks its plan is as a naive restatement says: each trainable element has one
// place and one owner, shards differ by one line at most, and the plan survives the wire with the
// same digest. What ranks hold and send is counted without overflow.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/manifest/manifest.h"
#include "common/sharding/replicas.h"
#include "common/sharding/shard_plan.h"
#include "lockstep/v1/membership.pb.h"
#include "proto/convert/model_convert.h"
#include "tests/fuzz/message_text.h"
#include "tests/fuzz/promises.h"

namespace lockstep {
namespace {

constexpr int kWorldSizes[] = {1, 2, 3, 7, 100, kMaxWorldSize};
// The longest takes most of the time.
constexpr int kLargestSent = 100;
constexpr DType kBlockOrder[] = {DType::kFloat32, DType::kBfloat16, DType::kFloat16};
// Wide enough for any sum of sizes.
__extension__ using Wide = __int128;

absl::Status IsOkOrInvalidArgument(const absl::Status& status, absl::string_view of) {
  return IsOkOr({absl::StatusCode::kInvalidArgument}, status, of);
}

absl::Status CheckTranslation(const Manifest& manifest) {
  v1::Manifest received;
  LOCKSTEP_RETURN_IF_ERROR(Holds(received.ParseFromString(ToProto(manifest).SerializeAsString()),
                                 "what is sent can be read", manifest.optimizer));
  const absl::StatusOr<Manifest> back = FromProto(received);
  LOCKSTEP_RETURN_IF_ERROR(Holds(back.ok(), "what is sent is valid", back.status().ToString()));
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(*back == manifest && !FirstDifference("a", manifest, "b", *back).has_value(),
            "what is received is what was sent", manifest.optimizer));
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(back->Digest() == manifest.Digest(), "equal models, equal digests",
            manifest.optimizer));
  Manifest other = manifest;
  other.optimizer += '.';
  return Holds(other.Digest() != manifest.Digest() &&
                   FirstDifference("a", manifest, "b", other).has_value(),
               "another model differs, also by its digest", manifest.optimizer);
}

Wide Elements(const TensorSpec& tensor) {
  Wide elements = 1;
  for (const std::int64_t dimension : tensor.shape) {
    if (dimension == 0) return 0;
    elements *= dimension;  // a valid model's fit
  }
  return elements;
}

// Each parameter where the one before ends, rounded up; all of a type before the next.
absl::Status CheckPlaces(const Manifest& manifest, const ShardPlan& plan) {
  Wide end = 0;
  std::size_t placed = 0;
  for (const DType dtype : kBlockOrder) {
    const Wide begin = end;
    for (const ParameterSpec& parameter : manifest.parameters) {
      if (!parameter.trainable || parameter.tensor.dtype != dtype) continue;
      const Wide elements = Elements(parameter.tensor);
      const bool is_placed =
          placed < plan.placements.size() && plan.placements[placed].elements == elements &&
          plan.placements[placed].offset == end &&
          plan.placements[placed].name == parameter.tensor.name;
      LOCKSTEP_RETURN_IF_ERROR(Holds(is_placed, "each trainable parameter has one place",
                                     parameter.tensor.name));
      ++placed;
      end += (elements + kAlignElements - 1) / kAlignElements * kAlignElements;
    }
    const auto block = std::ranges::find(plan.blocks, dtype, &Block::dtype);
    const bool is_block = begin == end
                              ? block == plan.blocks.end()
                              : block != plan.blocks.end() && block->begin == begin &&
                                    block->end == end;
    LOCKSTEP_RETURN_IF_ERROR(Holds(is_block, "each type has one block", DTypeName(dtype)));
  }
  return Holds(placed == plan.placements.size() && end == plan.flat_elements,
               "nothing else has a place", manifest.optimizer);
}

absl::Status CheckOwners(const ShardPlan& plan, int world_size) {
  std::int64_t end = 0, shortest = plan.flat_elements, longest = 0;
  for (const Shard& shard : plan.shards) {
    LOCKSTEP_RETURN_IF_ERROR(Holds(shard.begin == end && shard.end >= end,
                                   "each element has one owner", absl::StrCat(end)));
    end = shard.end;
    shortest = std::min(shortest, shard.elements());
    longest = std::max(longest, shard.elements());
  }
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(end == plan.flat_elements && static_cast<int>(plan.shards.size()) == world_size,
            "each element has an owner", absl::StrCat(end)));
  LOCKSTEP_RETURN_IF_ERROR(Holds(longest - shortest <= kAlignElements,
                                 "shards differ by one line at most", absl::StrCat(world_size)));
  for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
    const Block& block = plan.blocks[i];
    Wide sum = 0;
    for (const Shard& part : ShardsWithin(plan, block)) sum += part.elements();
    LOCKSTEP_RETURN_IF_ERROR(Holds(sum == block.elements() && BlockAt(plan, block.begin) == i &&
                                       BlockAt(plan, block.end - 1) == i,
                                   "a block is dealt out", DTypeName(block.dtype)));
  }
  return absl::OkStatus();
}

// What a naive count gives, or the largest number.
bool IsCount(std::int64_t count, Wide expected) {
  return count == static_cast<std::int64_t>(std::min<Wide>(expected, INT64_MAX));
}

absl::Status CheckCosts(const ShardPlan& plan, int rank, int replicas) {
  const int world_size = static_cast<int>(plan.shards.size());
  const Shard& own = plan.shards[rank];
  Wide kept = 0, sent = 0, floats = 0;
  const std::vector<int> owners = OwnersKeptBy(rank, world_size, replicas);
  for (const int owner : owners) kept += plan.shards[owner].elements() * Wide{8};
  for (const Block& block : plan.blocks) {
    const Wide bytes = ElementBytes(block.dtype);
    const auto within = [&](const Shard& shard) {
      return std::max<Wide>(0, std::min(shard.end, block.end) - std::max(shard.begin, block.begin));
    };
    for (const int owner : owners) {
      const Wide elements = within(plan.shards[owner]);
      if (block.dtype != DType::kFloat32) kept += elements * 4;
      if (owner != rank) kept += elements * bytes;
    }
    sent += (block.elements() - within(own)) * bytes + within(own) * (world_size - 1) * bytes;
    floats += within(own) * 4;
  }
  if (replicas > 1 && world_size > 1) sent += floats;
  LOCKSTEP_RETURN_IF_ERROR(Holds(IsCount(StateBytes(plan, rank, replicas, 8), kept),
                                 "what a rank holds is counted", absl::StrCat(rank)));
  return Holds(IsCount(BytesSentInStep(plan, rank, replicas), sent),
               "what a rank sends is counted", absl::StrCat(rank));
}

absl::Status CheckPlan(const Manifest& manifest, const ShardPlan& plan, int world_size) {
  const absl::Status valid = Validate(plan);
  LOCKSTEP_RETURN_IF_ERROR(Holds(valid.ok(), "a plan is valid", valid.ToString()));
  LOCKSTEP_RETURN_IF_ERROR(CheckPlaces(manifest, plan));
  LOCKSTEP_RETURN_IF_ERROR(CheckOwners(plan, world_size));
  for (const int rank : {0, world_size / 2, world_size - 1}) {
    for (const int replicas : {1, 2}) {
      LOCKSTEP_RETURN_IF_ERROR(CheckCosts(plan, rank, replicas));
    }
  }
  if (world_size > kLargestSent) return absl::OkStatus();
  v1::ShardPlan received;
  LOCKSTEP_RETURN_IF_ERROR(Holds(received.ParseFromString(ToProto(plan).SerializeAsString()),
                                 "a plan can be sent", manifest.optimizer));
  const absl::StatusOr<ShardPlan> back = FromProto(received);
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(back.ok(), "a plan that is sent is valid", back.status().ToString()));
  return Holds(*back == plan && back->Digest() == plan.Digest(),
               "a plan that is received is what was sent, by its digest too", manifest.optimizer);
}

bool ReadInput(absl::string_view bytes, v1::Manifest* message) {
  if (bytes.empty()) return false;
  const char form = bytes.front();
  bytes.remove_prefix(1);
  if (form != 't') return ReadMessage(form, bytes, message);
  for (const absl::string_view line : absl::StrSplit(bytes, '\n')) {
    v1::Manifest part;
    if (ReadMessage(form, line, &part)) message->MergeFrom(part);
  }
  return true;
}

}  // namespace

absl::StatusOr<Reached> CheckPromises(absl::string_view bytes) {
  v1::Manifest message;
  if (!ReadInput(bytes, &message)) return Reached::kUnread;
  const absl::StatusOr<Manifest> manifest = FromProto(message);
  LOCKSTEP_RETURN_IF_ERROR(IsOkOrInvalidArgument(manifest.status(), "FromProto"));
  if (!manifest.ok()) return Reached::kRefused;
  const absl::Status valid = Validate(*manifest);
  LOCKSTEP_RETURN_IF_ERROR(Holds(valid.ok(), "what FromProto accepts is valid", valid.ToString()));
  LOCKSTEP_RETURN_IF_ERROR(CheckTranslation(*manifest));
  const bool is_planned = PlanShards(*manifest, 1).ok();
  for (const int world_size : kWorldSizes) {
    const absl::StatusOr<ShardPlan> plan = PlanShards(*manifest, world_size);
    LOCKSTEP_RETURN_IF_ERROR(IsOkOrInvalidArgument(plan.status(), "PlanShards"));
    LOCKSTEP_RETURN_IF_ERROR(Holds(plan.ok() == is_planned,
                                   "a model that has a plan has one for any number of ranks",
                                   plan.status().ToString()));
    if (plan.ok()) LOCKSTEP_RETURN_IF_ERROR(CheckPlan(*manifest, *plan, world_size));
  }
  for (const int world_size : {-1, 0, kMaxWorldSize + 1}) {
    LOCKSTEP_RETURN_IF_ERROR(Holds(!PlanShards(*manifest, world_size).ok(),
                                   "no plan for no ranks or too many", absl::StrCat(world_size)));
  }
  return is_planned ? Reached::kChecked : Reached::kRefused;
}

}  // namespace lockstep
