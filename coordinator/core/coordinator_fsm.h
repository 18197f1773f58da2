// CoordinatorFsm: the rules of the cluster as a deterministic state machine.
//
// Events in, effects out. It never reads a clock, waits, stores or sends; the
// runtime does. The same state and events give the same effects. Used by one
// thread.
//
// It only wires: what is decided is in membership.h, forming.h and policy_log.h,
// what a record changes in fold.h.
#ifndef LOCKSTEP_COORDINATOR_CORE_COORDINATOR_FSM_H_
#define LOCKSTEP_COORDINATOR_CORE_COORDINATOR_FSM_H_

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mono_time.h"
#include "coordinator/core/events.h"
#include "coordinator/core/state.h"

namespace lockstep {

class ModelComparison;

class CoordinatorFsm {
 public:
  // Starts from what is stored: the fold of all records. Members of a running
  // epoch are suspects whose lease begins `now`; a proposed epoch is over.
  // Errors: DataLoss names the first record that contradicts those before it.
  static absl::StatusOr<CoordinatorFsm> Recover(std::span<const Record> records, MonoTime now);

  // To be persisted by the caller before any event: a new start on this store.
  // Also carries what recovery itself decided.
  Effects Begin();

  // Applies events that happened at `now`, in their order; times never go back. Leases and
  // deadlines are judged by Tick alone, so that after a pause of the process the
  // messages that waited are heard first. What the messages of many workers together bring
  // about, as that an epoch forms, is looked at once behind them all, since each look is at all
  // workers; before a request or a Tick, too.
  Effects Step(MonoTime now, std::span<const Event> events);
  Effects Step(MonoTime now, const Event& event) { return Step(now, std::span(&event, 1)); }

  const ClusterState& state() const { return state_; }

 private:
  // Whose stream it is.
  struct Attendee {
    std::string job;
    std::string worker;
  };

  CoordinatorFsm() = default;

  // coordinator_fsm.cc: events.
  void On(MonoTime now, const RequestReceived& event, Effects& out);
  void On(MonoTime now, const MessageReceived& event, Effects& out);
  void On(MonoTime now, const StreamBroke& event, Effects& out);
  void On(MonoTime now, const Tick& event, Effects& out);

  // Applies the record and has it persisted.
  void Persist(Record record, Effects& out);
  // Brings the jobs to rest that have changed: forms, starts, sends entries.
  void SettleAll(MonoTime now, Effects& out);
  void Settle(MonoTime now, JobState& job, Effects& out);
  std::optional<MonoTime> WakeAt() const;

  // requests.cc
  absl::StatusOr<Reply> Do(absl::Time wall_time, const CreateJob& request, Effects& out);
  absl::StatusOr<Reply> Do(absl::Time wall_time, const DeleteJob& request, Effects& out);
  absl::StatusOr<Reply> Do(absl::Time wall_time, const UpdateSyncPolicy& request, Effects& out);
  absl::StatusOr<Reply> Do(absl::Time wall_time, const SyncNow& request, Effects& out);
  absl::StatusOr<Reply> Do(absl::Time wall_time, const DrainWorker& request, Effects& out);
  absl::StatusOr<Reply> Do(absl::Time wall_time, const CheckpointNow& request, Effects& out);
  absl::StatusOr<JobState*> FindJob(const std::string& name);
  Reply Append(const JobState& job, Decision decision, absl::Time wall_time, Effects& out);

  // worker_messages.cc
  void NoteStep(JobState& job, WorkerState& worker, std::int64_t step);
  void Greet(MonoTime now, StreamId stream, const Hello& hello, Effects& out);
  void Hear(JobState& job, WorkerState& worker, const Heartbeat& message, Effects& out);
  void Hear(JobState& job, WorkerState& worker, const Endpoint& message, Effects& out);
  void Hear(JobState& job, WorkerState& worker, const Ready& message, Effects& out);
  void Hear(JobState& job, WorkerState& worker, const Applied& message, Effects& out);
  void Hear(JobState& job, WorkerState& worker, const Leave& message, Effects& out);

  // regrouping.cc
  void Hear(JobState& job, WorkerState& worker, const EpochStopped& message, Effects& out);
  // Once all members that have not left stopped behind a Regroup.
  void EndIfAllStopped(JobState& job, Effects& out);
  // Once workers have waited for a place in the running epoch for a join window.
  void RegroupIfWorkersWait(MonoTime now, JobState& job, Effects& out);
  void PutOutDrained(JobState& job, WorkerState& worker, Effects& out);
  // As EndEpoch(). After epochs in which no step was taken, the next is proposed later
  // and later, so that a fault that stays does not keep all busy.
  void EndForError(JobState& job, const absl::Status& why, Effects& out);

  // epochs.cc
  void FormIfPossible(MonoTime now, JobState& job, Effects& out);
  bool TurnAwayIfTheyDisagree(JobState& job, const std::vector<std::string>& members,
                              Effects& out);
  // Of `workers`; says whether there were any.
  bool TurnAwayOthersThanTheJobs(JobState& job, const std::vector<std::string>& workers,
                                 ModelComparison& models, Effects& out);
  // Of those that attend and are no survivors; says whether there were any.
  bool TurnAwayOthersThan(JobState& job, const WorkerState& one, ModelComparison& models,
                          Effects& out);
  // Whether the job's newest policy fits that model.
  absl::Status CheckNewestPolicy(const JobState& job, const Manifest& model);
  void Propose(MonoTime now, JobState& job, const std::vector<std::string>& members, Effects& out);
  static SharedMessage MakeProposal(const JobState& job);
  void SendProposal(const JobState& job, WorkerState& worker, const SharedMessage& proposal,
                    Effects& out);
  void StartIfReady(JobState& job, Effects& out);
  void SendNewEntries(JobState& job, Effects& out);
  // What the epoch before did not come to.
  void AskAgain(const JobState& job, Decision decision, Effects& out);
  // The epoch is over for all; those with an open stream attend again. OK: the
  // last of its members finished. `regrouped`: as EpochEnded.
  void EndEpoch(JobState& job, const absl::Status& why, Effects& out, bool regrouped = false);
  // Ends the worker's stream, if open, and forgets the worker. If it is a member
  // its epoch must end next.
  void PutOut(JobState& job, const std::string& worker, const absl::Status& why, Effects& out);

  // losses.cc; each says whether anything changed.
  bool ExpireLeases(MonoTime now, JobState& job, Effects& out);
  bool ExpireReadiness(MonoTime now, JobState& job, Effects& out);
  bool ExpireReturns(MonoTime now, JobState& job, Effects& out);
  bool ExpireStalls(MonoTime now, JobState& job, Effects& out);
  // When a member whose stream broke is given up, before its lease ends.
  static MonoTime ReturnDeadline(const JobState& job, const WorkerState& worker);
  // The first moment at which a Tick changes something; Infinite(): never.
  static MonoTime NextDeadline(const JobState& job);

  ClusterState state_;
  MonoTime now_;  // of the event in progress
  std::set<std::string> unsettled_;  // jobs that events of the Step in progress have changed
  std::map<StreamId, Attendee> streams_;
  // By job; never later than the first lease or deadline that may end.
  std::map<std::string, MonoTime> wake_;
  // By job: the newest policy held against a model, since many buffers take their
  // time and every event of a waiting job asks.
  struct PolicyFit {
    Revision revision;
    std::uint64_t model = 0;  // its digest
    absl::Status fits;
  };
  std::map<std::string, PolicyFit> fits_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_COORDINATOR_FSM_H_
