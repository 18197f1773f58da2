// StepProtocol: one rank's view of the control log, the policy in force, and
// what is due when. The rules by which all ranks switch at the same step.
//
//   Learn(entry)  ...  Propose() -> word --agreed--> Commit(agreement)
//                                                      entries up to the agreed
//                                                      number take effect
//
// It moves no data and talks to nobody: the engine does. Pure; deterministic;
// thread-compatible.
#ifndef LOCKSTEP_WORKER_CORE_STEP_PROTOCOL_H_
#define LOCKSTEP_WORKER_CORE_STEP_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/policy/buffer_rules.h"
#include "common/policy/schedule.h"
#include "common/policy/sync_policy.h"
#include "common/protocol/control_log.h"
#include "worker/core/agreement.h"

namespace lockstep {

// Known entries that wait for the other ranks are bounded by this.
inline constexpr int kMaxPendingEntries = 4096;

// How the buffers of one treatment are synchronised now.
struct BufferSync {
  Operation operation = Operation::kBroadcast;  // never kNone
  int root = 0;                                 // of kBroadcast
  // Of kMeanBySamples, by rank: since these buffers were last synchronised, or
  // since the policy is in force. Equal on all ranks.
  std::vector<std::int64_t> samples;

  bool operator==(const BufferSync&) const = default;
};

// One synchronisation that is due now on all ranks.
struct SyncTask {
  // Of the policy under which it became due, which the policy in force may already
  // have replaced. Never null.
  std::shared_ptr<const BufferRules> rules;
  // By treatment of `rules`; nothing: its buffers are not due.
  std::vector<std::optional<BufferSync>> buffers;
  bool skip_unchanged = false;
  enum class Parameters { kNothing, kBroadcast, kCheck };
  Parameters parameters = Parameters::kNothing;
  int root = 0;  // of the parameters

  bool has_buffers() const;
};

// An entry of the control log that took effect here between `step` and the next.
struct AppliedEntry {
  LogNumber number;
  Revision revision;  // of the policy it put in force; not valid: it was a command
  std::int64_t step = 0;

  bool operator==(const AppliedEntry&) const = default;
};

struct StepOutcome {
  std::int64_t step = 0;            // committed steps, this one included
  std::vector<AppliedEntry> applied;
  std::vector<SyncTask> due;        // to be done now, in order
  // The epoch ends here, on all ranks. Entries behind it stay pending for good: they
  // are part of what the next epoch's proposal says.
  std::optional<Regroup> regroup;
  bool checkpoint = false;          // a CheckpointOnce took effect
};

class StepProtocol {
 public:
  // `members`: worker names by rank. `policy`, of `revision`, contains all
  // entries up to `log_number`.
  // Errors: InvalidArgument: the policy is not valid.
  static absl::StatusOr<StepProtocol> Create(std::vector<std::string> members,
                                             LogNumber log_number, Revision revision,
                                             SyncPolicy policy);

  // The epoch continues behind `step`; before anything else is called.
  void ContinueBehind(std::int64_t step) { step_ = step; }

  // Takes in an entry that the coordinator sent. Known ones are ignored.
  // Errors: FailedPrecondition: a number was skipped. InvalidArgument: its policy
  //   is not valid. ResourceExhausted: kMaxPendingEntries wait already; nothing
  //   is lost if the entry is learned after a later step.
  absl::Status Learn(const ControlEntry& entry);

  // What is due, in order, on an occasion that all ranks reach together.
  std::vector<SyncTask> AtStart();
  // Once per training forward; later forwards of the same step trigger nothing.
  std::vector<SyncTask> BeforeForward();
  std::vector<SyncTask> BeforeEvaluation();
  std::vector<SyncTask> BeforeCheckpoint();
  // Whatever the schedule says. See SyncOnce.
  std::vector<SyncTask> OnCommand(const SyncOnce& what);

  // This rank's word for the step in progress.
  ControlWord Propose(std::int64_t samples) const;

  // The step is taken by all ranks under `agreement`. What the schedule asks for
  // after this step is judged by the policy the step ran under; what took effect
  // governs the steps behind it.
  StepOutcome Commit(const Agreement& agreement);

  std::int64_t step() const { return step_; }  // committed
  LogNumber known() const { return known_; }
  LogNumber applied() const { return applied_; }
  Revision revision() const { return now_.revision; }
  const SyncPolicy& policy() const { return now_.policy; }
  const BufferRules& rules() const { return *now_.rules; }

 private:
  // A policy in force, and since when each of its treatments gathers samples.
  struct InForce {
    Revision revision;
    SyncPolicy policy;
    std::shared_ptr<const BufferRules> rules;
    // By treatment, then by rank: samples_ when its buffers were last synchronised.
    std::vector<std::vector<std::int64_t>> samples_then;
  };

  // An entry that is known and not applied.
  struct PendingEntry {
    ControlEntry entry;
    std::shared_ptr<const BufferRules> rules;  // of a revision
  };

  StepProtocol(std::vector<std::string> members, LogNumber log_number);

  void PutInForce(const PolicyRevised& revised, std::shared_ptr<const BufferRules> rules);
  // Buffers that are due at `moment`.
  std::vector<SyncTask> At(Moment moment, std::int64_t count);
  // Buffers as `choose` (treatment -> sync, or nothing) says; notes that they were
  // synchronised.
  template <typename Choose>
  SyncTask BufferTask(Choose choose);
  SyncTask ParameterTask(SyncTask::Parameters what, const Root& root) const;
  BufferSync AsTreated(std::size_t treatment) const;
  void Apply(const PendingEntry& pending, StepOutcome& outcome);

  std::vector<std::string> members_;
  std::int64_t step_ = 0;
  std::int64_t forwards_ = 0;        // training forwards, one per step counted
  bool forward_seen_ = false;        // in the step in progress
  LogNumber known_;
  LogNumber applied_;
  InForce now_;
  std::vector<std::int64_t> samples_;  // committed in this epoch, by rank; stops at the largest
  std::deque<PendingEntry> pending_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CORE_STEP_PROTOCOL_H_
