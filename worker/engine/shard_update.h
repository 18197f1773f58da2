// ShardUpdate: the part of a step in which owners sum gradients, update their shards
// and spread them, once the ranks have agreed. Whether the step is taken, and what is
// due afterwards, is decided elsewhere.
//
//   in one pass    owners update while they sum, and what is updated spreads at once
//   prepared       sums are made and kept, by buddies as well; all know that all have them: the
//                  step is committed; copies are updated, which takes nobody else; parameters
//                  spread
//
// A step is prepared if it is clipped, which takes all sums, or if the job has replicas, so
// that it can be completed without the ranks that are lost meanwhile; also by a rank that is
// alone, whose epoch may be aborted.
//
// Of one epoch. Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_SHARD_UPDATE_H_
#define LOCKSTEP_WORKER_ENGINE_SHARD_UPDATE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/core/agreement.h"
#include "worker/engine/engine_options.h"
#include "worker/engine/membership.h"

namespace lockstep {

class ShardUpdate {
 public:
  // `membership` outlives this; its commit tells how far a step has come. `on_phase` may be
  // null.
  ShardUpdate(Membership* membership, std::function<void(StepPhase, std::int64_t)> on_phase)
      : membership_(*membership), on_phase_(std::move(on_phase)) {}

  // Collective. The norm of the averaged gradient, unscaled, before it was clipped;
  // nothing if the step does not ask for it.
  // Errors: as Transport's, and what `math` or the optimizer say.
  absl::StatusOr<std::optional<double>> Apply(const Agreement& agreement);

 private:
  absl::Status InOnePass(const Agreement& agreement);
  // Also returns the squared norm of the sums, of all ranks, if the step clips.
  absl::StatusOr<double> Prepare(const Agreement& agreement);
  absl::StatusOr<double> ReduceAndKeep(const Agreement& agreement);
  absl::Status PassSumsToBuddies();
  absl::Status Spread();

  bool has_buddies() const;
  void Reach(StepPhase phase) const {
    if (on_phase_) on_phase_(phase, membership_.protocol.step());
  }

  Membership& membership_;
  const std::function<void(StepPhase, std::int64_t)> on_phase_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_SHARD_UPDATE_H_
