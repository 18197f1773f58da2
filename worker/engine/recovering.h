// Recovering: the first thing that members of an epoch do together: they find out what each
// of them brings (worker/core/recovery.h), and state moves to where the epoch wants it.
//
// What a rank brings is its last membership, whose arenas and copies stay as they are until
// all have recovered: if the new epoch fails meanwhile, the next one starts from them. Where a
// rank has taken over its part of the new epoch, but cannot know that of all others, it brings
// both: some may have nothing else any more. Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_RECOVERING_H_
#define LOCKSTEP_WORKER_ENGINE_RECOVERING_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/core/recovery.h"
#include "worker/engine/membership.h"

namespace lockstep {

// The oldest first; none: this rank brings nothing.
using HeldMemberships = std::vector<std::shared_ptr<Membership>>;

// Collective. What all decide. Errors: as Transport's.
absl::StatusOr<Recovery> AgreeOnRecovery(const HeldMemberships& held, Membership& now);

// Collective, where they continue. Completes the prepared step of what is held if that was
// decided, fills the copies and arenas of `now`, and makes parameters equal on all ranks.
// Errors: as Transport's and DeviceMath's. What is held can still be brought into another epoch.
absl::Status CarryOver(const Recovery& recovery, const HeldMemberships& held, Membership& now);

// `now` is what this rank can bring into another epoch, too.
void TakeOver(const Recovery& recovery, Membership& now);

// Collective, behind the last step of an epoch: the copies of the member `drained`, who will not
// be in the next one, go to others (HandOversOf()). Nothing happens if there is no such member.
// Errors: as Transport's and DeviceMath's; nothing is lost.
absl::Status HandOverCopiesOf(const std::string& drained, Membership& now);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_RECOVERING_H_
