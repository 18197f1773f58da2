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

absl::StatusOr<Arena> SoloTransport::Allocate(ArenaUse use, std::int64_t elements) {
  LOCKSTEP_RETURN_IF_ERROR(Alive());
  if (elements == 0) return Arena{};
  arenas_.emplace_back((elements + 15) / 16);
  return Arena{.values = {arenas_.back().front().values, static_cast<std::size_t>(elements)}};
}

absl::Status SoloTransport::ReduceToOwners(const Arena& gradients, std::span<const Shard> shards,
                                           float weight) {
  LOCKSTEP_RETURN_IF_ERROR(Alive());
  // Weight 0 contributes nothing, not even NaN.
  for (float& value : gradients.values) value = weight == 0 ? 0 : value * weight;
  return absl::OkStatus();
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
