// StepCommit: how far one rank is with its step, and what it could bring into another epoch.
//
//   idle --Prepared--> prepared --all have prepared--> updating --Updated--> idle, one step on
//   idle --BeginUpdate--> updating                     (without replicas: nobody can complete it)
//
// The step is committed as soon as one rank knows that all have prepared it: each of them can
// complete it alone, so that it cannot be lost any more with any rank that does not
// take the last copy of a shard along. What was prepared and is not completed by the
// decision of all (recovery.h) was never committed. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_CORE_STEP_COMMIT_H_
#define LOCKSTEP_WORKER_CORE_STEP_COMMIT_H_

#include <cstdint>
#include <span>

#include "common/base/ids.h"
#include "common/sharding/shard_plan.h"
#include "worker/core/recovery.h"

namespace lockstep {

class StepCommit {
 public:
  enum class Stage { kIdle, kPrepared, kUpdating };

  StepCommit() = default;
  // Replicas are equal in `epoch`, behind `step` of `lineage`; this rank holds `copies`.
  StepCommit(Epoch lineage, Epoch epoch, std::int64_t step, std::int64_t samples,
             std::span<const Shard> copies);

  // Idle: this rank holds all that it takes to complete the next step, of `samples`.
  void Prepared(std::int64_t samples);
  // Copies are being changed, and are of no step. Prepared, and all are known to be:
  void BeginUpdate();
  // Idle: a step of `samples` that nobody prepares.
  void BeginUpdate(std::int64_t samples);
  // Updating: copies are behind the next step.
  void Updated();

  Stage stage() const { return stage_; }
  std::int64_t step() const { return held_.step; }        // that copies are behind
  std::int64_t samples() const { return held_.samples; }  // committed with it and those before

  // Without a learning rate. In the middle of an update no copy counts, and of the step before
  // neither: what was changed is lost.
  Holding holding() const;

 private:
  Holding Next() const;  // behind the step that is being taken

  Stage stage_ = Stage::kIdle;
  Holding held_;  // not valid lineage: nothing yet
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CORE_STEP_COMMIT_H_
