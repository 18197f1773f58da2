// The coordinator's state, as plain values: jobs, workers, epochs, policy.
//
//   worker:  absent --Hello--> attending --Proposal--> preparing --Ready--> ready
//            ready --Start--> training --Leave(OK)--> left
//            any --stream broke--> suspect --lease over, Leave(error)--> absent
//   job:     waiting --enough workers--> forming --all ready--> running
//            forming, running --a member is lost, stopped for an error--> waiting
//            running --all members stopped behind a Regroup--> waiting
//
// An epoch that is over does not cost its members their place: those that attend are
// the next epoch's first choice, and form it at once if they are enough.
//
// Changed only by CoordinatorFsm; read by the services that answer queries.
// Thread-compatible.
#ifndef LOCKSTEP_COORDINATOR_CORE_STATE_H_
#define LOCKSTEP_COORDINATOR_CORE_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/mono_time.h"
#include "common/manifest/manifest.h"
#include "common/policy/sync_policy.h"
#include "common/protocol/control_log.h"
#include "common/protocol/messages.h"
#include "common/sharding/shard_plan.h"

namespace lockstep {

// Bounds on what one coordinator manages.
inline constexpr int kMaxJobs = 1000;
inline constexpr int kMaxWorkersPerJob = 10'000;
inline constexpr int kMaxRevisionsPerJob = 100'000;

// One Attend stream; never used again after it ends.
using StreamId = StrongId<struct StreamIdTag>;

struct JobSpec {
  std::string name;
  int min_workers = 1;
  int max_workers = 0;               // 0: min_workers
  std::vector<std::string> workers;  // names that may attend; empty: any
  absl::Duration join_window = absl::Seconds(5);
  absl::Duration lease = absl::Seconds(10);
  absl::Duration ready_timeout = absl::Seconds(60);
  int optimizer_replicas = 1;  // 1 or 2; see Proposal
  absl::Duration stall_timeout = absl::Minutes(2);  // zero: never
  SyncPolicy policy;

  int LargestEpoch() const { return max_workers == 0 ? min_workers : max_workers; }
  bool Lists(const std::string& worker) const;  // may attend

  bool operator==(const JobSpec&) const = default;
};

// Errors: InvalidArgument names the field.
absl::Status Validate(const JobSpec& spec);

enum class WorkerStage { kAttending, kPreparing, kReady, kTraining, kSuspect, kLeft };

struct WorkerState {
  std::string name;
  WorkerStage stage = WorkerStage::kAttending;
  Incarnation incarnation;
  StreamId stream;  // not valid: none open
  MonoTime last_heard;
  std::optional<MonoTime> broke_at;  // when its stream broke, if none is open
  Manifest manifest;
  // A member that was not heard since the coordinator was started again: the
  // manifest is the job's, from which its own may differ in what is not selected.
  bool is_presumed = false;
  std::string transport;
  std::uint64_t plan_digest = 0;  // as said in Ready
  std::int64_t optimizer_bytes = 0;
  std::int64_t step = 0;  // committed, of the job; goes on from epoch to epoch
  MonoTime step_since;    // when it last changed
  Phase phase = Phase::kJoining;
  std::map<std::string, double> metrics;
  SyncCounters sync;
  // Was a member when the last epoch ended, and has what it had.
  bool is_survivor = false;
  std::string told;  // what the job waits for, as it was last told
  LogNumber sent;  // control entries up to this one were sent on `stream`
};

struct Member {
  std::string worker;
  Incarnation incarnation;

  bool operator==(const Member&) const = default;
};

enum class EpochStage { kProposed, kRunning };

struct EpochState {
  Epoch id;
  EpochStage stage = EpochStage::kProposed;
  std::vector<Member> members;  // by rank; sorted by name
  ShardPlan plan;
  std::uint64_t plan_digest = 0;  // the plan's
  LogNumber log_number;         // entries up to it are part of the proposal
  std::set<std::string> left;   // members that finished; the epoch goes on
  MonoTime ready_deadline;
  std::optional<std::string> endpoint;  // rank 0's bytes, once sent
  LogNumber regroup;              // the entry that ends it; not valid: none yet
  std::set<std::string> stopped;  // members that stopped behind that
  MonoTime stopped_since;         // when the first did
  std::int64_t highest_step = 0;  // that a member reported
  MonoTime highest_since;         // when it did
};

// Also if it has left.
bool IsMember(const EpochState& epoch, const Member& member);

struct PolicyHistoryEntry {
  Revision revision;
  SyncPolicy policy;
  LogNumber number;  // not valid: the job's first policy
  std::string etag;
  absl::Time create_time;
  std::string author;
  std::string reason;

  bool operator==(const PolicyHistoryEntry&) const = default;
};

// An entry of the control log and how far it came.
struct LoggedEntry {
  ControlEntry entry;
  // By worker: it took effect between this step and the next.
  std::map<std::string, std::int64_t> applied;

  bool operator==(const LoggedEntry&) const = default;
};

enum class JobStage { kWaiting, kForming, kRunning };

struct JobState {
  JobSpec spec;
  absl::Time create_time;
  JobStage stage = JobStage::kWaiting;
  std::string detail;  // why it is in this stage, for people
  std::map<std::string, WorkerState> workers;
  std::optional<MonoTime> window_end;   // of the join window, while it runs
  std::optional<MonoTime> regroup_at;   // while workers wait for a place in a running epoch
  std::optional<MonoTime> retry_at;     // no epoch is proposed before
  int fruitless = 0;  // epochs in a row that ended for an error before a step was taken
  // By worker: up to this incarnation it was drained, and may not attend.
  std::map<std::string, Incarnation> drained;
  // Of all epochs, but for buffers that are not synchronised: the first member's
  // of the first epoch.
  std::optional<Manifest> manifest;
  // Was to be drained, but its epoch ended before it had handed over what it has: to be
  // asked for again.
  std::optional<Member> to_drain;
  // The last epoch that ran and is over, and its members: together they have the job's state.
  // Not valid: it left, and what it had is gone.
  Epoch last_run;
  std::map<std::string, Incarnation> holders;
  // Of those whom the next epoch waits for, as they may come back.
  std::vector<std::string> awaited;
  std::optional<EpochState> epoch;      // while forming or running
  Epoch last_epoch;                     // the highest id used
  std::string last_end;                 // why the last epoch ended, for people
  std::string last_refusal;             // why none could be proposed lately
  std::int64_t last_step = 0;           // the highest reported in the epochs before
  std::vector<PolicyHistoryEntry> policies;  // by revision, from 1
  std::vector<LoggedEntry> log;              // by number, from 1
  LogNumber in_force;     // an epoch was started with the entries up to it
  // What of the newest policy matched nothing when the first epoch told the
  // model, for people; empty: all matched.
  std::string unmatched;
  std::string violation;  // a broken guarantee; empty: none

  const PolicyHistoryEntry& newest_policy() const { return policies.back(); }
  LogNumber last_number() const { return LogNumber(static_cast<std::int64_t>(log.size())); }
  std::int64_t step() const;  // the highest that a member of the newest epoch reported
  int RankOf(const std::string& worker) const;    // -1: not a member
  // The worker if it belongs to the current epoch and has not left, else null.
  const WorkerState* FindMember(const std::string& worker) const;
};

// Four heartbeats may be lost before a lease ends; a second keeps views fresh.
absl::Duration HeartbeatInterval(const JobSpec& spec);

// Where all others wait for one whose stream broke, it has this long to come back: a
// process that lives dials again sooner, and one that was killed must not cost a lease.
absl::Duration ReturnTime(const JobSpec& spec);

// Not heard for more than two heartbeat intervals: stopped, or cut off.
bool IsSilent(const JobState& job, const WorkerState& worker, MonoTime now);

// When it counts as stalled: it beats, but for JobSpec::stall_timeout its step stays
// below another's, or it has not stopped behind a Regroup as others have. Infinite():
// it does its part.
MonoTime StallsAt(const JobState& job, const WorkerState& worker);

// The model as far as it is known: of the job's epochs; before the first, of the
// first worker, attending ones first. Null: of nobody.
const Manifest* KnownModel(const JobState& job);

// The names of its buffers, then of those that only other workers have. They live
// as long as the manifests.
std::vector<absl::string_view> KnownBufferNames(const JobState& job);

// Whether the entry is in force on all ranks: each remaining member of the epoch
// applied it, or an epoch was started with it.
bool IsEffective(const JobState& job, LogNumber number);

// "1 of 2 workers attend (w0); 1 more is needed": why the job is where it is.
std::string DescribeJob(const JobState& job);

struct ClusterState {
  Generation generation;
  std::map<std::string, JobState> jobs;
};

// What must always hold; checked after each event in tests and simulation.
// Errors: Internal names the job and the broken rule.
absl::Status CheckInvariants(const ClusterState& state);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_STATE_H_
