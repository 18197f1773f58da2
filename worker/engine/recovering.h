// Recovering: the first thing that members of an epoch do together: they find out what each
// of them brings (worker/core/recovery.h), and state moves to where the epoch wants it.
//
// What a rank brings is its last membership, whose arenas and copies stay as they are until
// all have recovered: if the new epoch fails meanwhile, the next one starts from them. Used by
// one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_RECOVERING_H_
#define LOCKSTEP_WORKER_ENGINE_RECOVERING_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/core/recovery.h"
#include "worker/engine/membership.h"

namespace lockstep {

// Collective. What all decide; `last`: null: this rank brings nothing.
// Errors: as Transport's.
absl::StatusOr<Recovery> AgreeOnRecovery(const Membership* last, Membership& now);

// Collective, where they continue. Completes the prepared step of `last` if that was decided, fills
// the copies and arenas of `now`, and makes parameters equal on all ranks.
// Errors: as Transport's and DeviceMath's. `last` can still be brought into another epoch.
absl::Status CarryOver(const Recovery& recovery, Membership* last, Membership& now);

// Collective, the last of what members do before they train: from now on `now` is what a rank
// brings into the next epoch.
absl::Status BeginTraining(const Recovery& recovery, Membership& now);

// Collective, behind the last step of an epoch that ends without replicas: the state of the member
// `drained`, who will not be in the next one, is copied to the rank behind it. Nothing happens if
// there is no such member, or no other. Errors: as Transport's and DeviceMath's.
absl::Status HandOverShardOf(const std::string& drained, Membership& now);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_RECOVERING_H_
