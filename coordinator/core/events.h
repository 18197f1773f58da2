// What happens to the coordinator, and what it does about it, as plain values.
#ifndef LOCKSTEP_COORDINATOR_CORE_EVENTS_H_
#define LOCKSTEP_COORDINATOR_CORE_EVENTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/mono_time.h"
#include "common/policy/sync_policy.h"
#include "common/protocol/messages.h"
#include "coordinator/core/state.h"

namespace lockstep {

// ---- events ----

// Whoever asked gets exactly one Answer with the same id.
using RequestId = StrongId<struct RequestIdTag>;

struct CreateJob {
  JobSpec spec;
};
struct DeleteJob {
  std::string job;
};
struct UpdateSyncPolicy {
  std::string job;
  SyncPolicy policy;
  std::string etag;  // empty: whatever the newest is
  bool validate_only = false;
  bool allow_unmatched = false;
  std::string author;
  std::string reason;
};
struct SyncNow {
  std::string job;
  SyncOnce what;
};
// One member stops at an agreed step; the others go on without it.
struct DrainWorker {
  std::string job;
  std::string worker;
  bool allow_waiting = false;  // also if too few for an epoch are left
};
struct CheckpointNow {
  std::string job;
};
using Request =
    std::variant<CreateJob, DeleteJob, UpdateSyncPolicy, SyncNow, DrainWorker, CheckpointNow>;

struct RequestReceived {
  RequestId id;
  absl::Time wall_time;  // for histories
  Request request;
};
struct MessageReceived {
  StreamId stream;
  WorkerMessage message;
};
struct StreamBroke {
  StreamId stream;
};
struct Tick {};  // time passed; see Effects::wake_at
using Event = std::variant<RequestReceived, MessageReceived, StreamBroke, Tick>;

// ---- records: state that survives is the fold of these ----

struct GenerationStarted {
  Generation generation;

  bool operator==(const GenerationStarted&) const = default;
};
struct JobCreated {
  JobSpec spec;
  absl::Time create_time;

  bool operator==(const JobCreated&) const = default;
};
struct JobDeleted {
  std::string job;

  bool operator==(const JobDeleted&) const = default;
};
struct ManifestAgreed {
  std::string job;
  Manifest manifest;

  bool operator==(const ManifestAgreed&) const = default;
};
struct EpochProposed {
  std::string job;
  Epoch epoch;
  std::vector<Member> members;

  bool operator==(const EpochProposed&) const = default;
};
struct EpochStarted {
  std::string job;
  Epoch epoch;

  bool operator==(const EpochStarted&) const = default;
};
// A member finished; the epoch goes on without it.
struct MemberLeft {
  std::string job;
  Epoch epoch;
  std::string worker;

  bool operator==(const MemberLeft&) const = default;
};
// EpochEnded::why, if each member has done its work.
inline constexpr absl::string_view kAllMembersFinished = "all members finished";

struct EpochEnded {
  std::string job;
  Epoch epoch;
  std::string why;
  // All members did as its Regroup asks: one that is drained has handed over what it had.
  bool regrouped = false;

  bool operator==(const EpochEnded&) const = default;
};
struct EntryAppended {
  std::string job;
  ControlEntry entry;
  std::string author;
  std::string reason;
  absl::Time create_time;

  bool operator==(const EntryAppended&) const = default;
};
struct EntryApplied {
  std::string job;
  LogNumber number;
  std::string worker;
  std::int64_t step = 0;

  bool operator==(const EntryApplied&) const = default;
};
using Record =
    std::variant<GenerationStarted, JobCreated, JobDeleted, ManifestAgreed, EpochProposed,
                 EpochStarted, MemberLeft, EpochEnded, EntryAppended, EntryApplied>;

// ---- effects ----

// What goes to all members is one object, however many they are. Immutable; any thread.
using SharedMessage = std::shared_ptr<const CoordinatorMessage>;

struct Outgoing {
  Outgoing(StreamId to, SharedMessage shared) : stream(to), message(std::move(shared)) {}
  Outgoing(StreamId to, CoordinatorMessage sole)
      : stream(to), message(std::make_shared<const CoordinatorMessage>(std::move(sole))) {}

  StreamId stream;
  SharedMessage message;  // not null
};
// Ends a stream; OK after a Leave.
struct EndStream {
  StreamId stream;
  absl::Status why;
};

// What a request brought about: nothing, the revision made (or that would be
// made), or the entry's number.
using Reply = std::variant<std::monostate, PolicyHistoryEntry, LogNumber>;
struct Answer {
  RequestId id;
  absl::StatusOr<Reply> reply;
};

// In the order of execution: `persist` is durable before anything else leaves.
struct Effects {
  std::vector<Record> persist;
  std::vector<Outgoing> send;
  std::vector<EndStream> end;
  std::vector<Answer> answers;
  std::set<std::string> changed_jobs;  // for watchers; deleted ones included
  // Those of them that changed by more than what heartbeats tell.
  std::set<std::string> settled_jobs;
  std::optional<MonoTime> wake_at;     // the next time at which a Tick matters
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_EVENTS_H_
