#include "worker/engine/solo_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace lockstep {

absl::Status SoloTransport::Exchange(std::span<const Transfer> transfers) {
  LOCKSTEP_RETURN_IF_ERROR(Alive());
  LOCKSTEP_RETURN_IF_ERROR(CheckViews(transfers));
  return CheckManner(transfers, world_size());
}

absl::Status SoloTransport::Pass(std::span<const Passage> passages) {
  LOCKSTEP_RETURN_IF_ERROR(Alive());
  return CheckPassages(passages, rank(), world_size());
}

absl::StatusOr<Arena> SoloTransport::Allocate(ArenaUse use, DType dtype, std::int64_t elements) {
  LOCKSTEP_RETURN_IF_ERROR(Alive());
  LOCKSTEP_ASSIGN_OR_RETURN(HostMemory memory,
                            HostMemory::Allocate(elements * ElementBytes(dtype)));
  memory_.push_back(std::move(memory));
  return Arena{.dtype = dtype, .data = memory_.back().data(), .elements = elements};
}

absl::Status SoloTransport::ReduceToOwners(const Arena& gradients, std::span<const Shard> shards,
                                           std::span<const float> weights,
                                           const ConsumeSums& consume) {
  LOCKSTEP_RETURN_IF_ERROR(Alive());
  const std::byte* source = gradients.at(shards[0].begin);
  WeightedSum(gradients.dtype, {&source, 1}, weights, shards[0].elements(), consume);
  return absl::OkStatus();
}

absl::Status SoloTransport::UpdateShards(const Arena& gradients, const Arena& parameters,
                                         std::span<const Shard> shards,
                                         std::span<const float> weights,
                                         const ConsumeSums& update) {
  return ReduceToOwners(gradients, shards, weights, update);
}

absl::Status SoloTransport::BroadcastFromOwners(const Arena& parameters,
                                                std::span<const Shard> shards) {
  return Alive();
}

absl::StatusOr<Agreement> SoloTransport::Agree(const ControlWord& mine) {
  LOCKSTEP_RETURN_IF_ERROR(Alive());
  return Combine({&mine, 1}, members_);
}

void SoloTransport::Abort(absl::Status why) {
  MutexLock lock(&mu_);
  if (dead_.ok()) dead_ = absl::AbortedError(absl::StrCat("aborted: ", why.message()));
}

absl::Status SoloTransport::Alive() {
  MutexLock lock(&mu_);
  return dead_;
}

}  // namespace lockstep
