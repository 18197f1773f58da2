// The messages of an Attend stream, as plain values.
//
//   worker                               coordinator
//     Hello{manifest, ...}        ---->
//                                 <----  Welcome{lease, ...}
//     Heartbeat                   ---->
//                                 <----  Waiting{detail}       while no epoch can form
//                                 <----  Proposal{epoch, members, plan, policy}
//     Endpoint{bytes} (rank 0)    ---->
//                                 <----  Endpoint{bytes}       to all members
//     Ready                       ---->
//                                 <----  Start                 once all are ready
//     Heartbeat, Applied, ...     ---->
//                                 <----  NewEntries, AbortEpoch
//     EpochStopped                ---->                        the epoch cannot go on, or
//                                 <----  AbortEpoch, Proposal  all agreed to regroup
//     Leave                       ---->
//
// A worker that the coordinator turns away gets its stream ended with a status.
// The wire form is proto/lockstep/v1/membership.proto. Pure values.
#ifndef LOCKSTEP_COMMON_PROTOCOL_MESSAGES_H_
#define LOCKSTEP_COMMON_PROTOCOL_MESSAGES_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/manifest/manifest.h"
#include "common/protocol/control_log.h"
#include "common/sharding/shard_plan.h"

namespace lockstep {

// Bounds on what one message may hold; a message beyond them is refused.
inline constexpr int kMaxMetrics = 32;
inline constexpr int kMaxMetricNameBytes = 128;
inline constexpr int kMaxEndpointBytes = 4096;
inline constexpr int kMaxEntriesPerMessage = 10'000;
inline constexpr int kMaxWorkerNameBytes = 253;
inline constexpr int kMaxJobNameBytes = 63;
inline constexpr int kMaxTransportNameBytes = 63;
inline constexpr int kMaxOptimizerReplicas = 2;

// What a worker is doing; reported in heartbeats. Wire values: never renumber.
enum class Phase : std::int32_t {
  kUnspecified = 0,
  kJoining = 1,
  kTraining = 2,
  kEvaluating = 3,
};

// ---- worker to coordinator ----

// First message of every stream, also after a reconnect.
struct Hello {
  std::string job;
  std::string worker;  // stable name, unique in the job
  Incarnation incarnation;
  Manifest manifest;
  std::string transport;  // "shm", "gloo", ...: must be equal on all members
  // Set on a reconnect: the epoch this worker trains in, or has stopped but was not
  // told to be over.
  Epoch epoch;
  // The newest control entry it holds; the coordinator sends those behind it.
  LogNumber log_number;

  bool operator==(const Hello&) const = default;
};

// What buffer synchronisation did on one rank since its epoch started.
struct SyncCounters {
  std::int64_t syncs = 0;          // that moved something
  std::int64_t transfers = 0;      // at most one for each operation and root of a sync
  std::int64_t bytes = 0;          // size of the tensors that were made equal
  std::int64_t skipped_bytes = 0;  // size of those left out as unchanged
  // Of the last sync:
  std::int64_t last_transfers = 0;
  std::int64_t last_bytes = 0;

  bool operator==(const SyncCounters&) const = default;
};

struct Heartbeat {
  Epoch epoch;
  std::int64_t step = 0;  // committed steps
  Phase phase = Phase::kJoining;
  // What the training code reports: "loss", "images_per_second", ...
  std::map<std::string, double> metrics;
  SyncCounters sync;

  bool operator==(const Heartbeat&) const = default;
};

// Opaque bytes by which members find each other's data plane. Rank 0 sends its
// own to the coordinator, which hands it to all members, rank 0 included.
struct Endpoint {
  Epoch epoch;
  std::string bytes;

  bool operator==(const Endpoint&) const = default;
};

// The worker built its transport and agrees with the plan.
struct Ready {
  Epoch epoch;
  std::uint64_t plan_digest = 0;
  std::int64_t optimizer_bytes = 0;  // state this rank holds

  bool operator==(const Ready&) const = default;
};

// A control entry took effect on this rank between step and step + 1.
struct Applied {
  Epoch epoch;
  LogNumber number;
  std::int64_t step = 0;

  bool operator==(const Applied&) const = default;
};

// This worker takes no more part in the epoch and waits for the next one, with the
// process and the state it has. OK: behind `step`, where a Regroup took effect; else
// the error of the operation that failed.
struct EpochStopped {
  Epoch epoch;
  std::int64_t step = 0;  // committed
  absl::Status why;

  bool operator==(const EpochStopped&) const = default;
};

// The worker stops attending. OK: it finished its work, and the others may go
// on; else the epoch cannot go on without it.
struct Leave {
  Epoch epoch;
  absl::Status why;

  bool operator==(const Leave&) const = default;
};

using WorkerMessage =
    std::variant<Hello, Heartbeat, Endpoint, Ready, Applied, Leave, EpochStopped>;

// ---- coordinator to worker ----

struct Welcome {
  Generation generation;
  absl::Duration lease;  // silence for longer than this ends the membership
  absl::Duration heartbeat_interval;

  bool operator==(const Welcome&) const = default;
};

// Answers the heartbeat of a worker that waits for an epoch, when there is news.
struct Waiting {
  std::string detail;  // what the job waits for, for people; who is missing

  bool operator==(const Waiting&) const = default;
};

struct Proposal {
  Epoch epoch;
  std::vector<std::string> members;  // by rank; sorted by name
  ShardPlan plan;
  // The policy in force when the epoch starts: entries up to `log_number` are in it.
  LogNumber log_number;
  Revision revision;
  SyncPolicy policy;
  absl::Duration ready_timeout;  // time to answer Ready
  // Each shard's optimizer state is kept by so many ranks, or by all if they are fewer.
  int optimizer_replicas = 1;
  // The job's last epoch that started, if none of the members took part in it; else not valid.
  Epoch missed;

  bool operator==(const Proposal&) const = default;
};

struct Start {
  Epoch epoch;

  bool operator==(const Start&) const = default;
};

struct NewEntries {
  std::vector<ControlEntry> entries;  // consecutive numbers

  bool operator==(const NewEntries&) const = default;
};

struct AbortEpoch {
  Epoch epoch;
  // CANCELLED: this start of the worker was drained, and is not to attend again.
  absl::Status why;

  bool operator==(const AbortEpoch&) const = default;
};

using CoordinatorMessage =
    std::variant<Welcome, Proposal, Endpoint, Start, NewEntries, AbortEpoch, Waiting>;

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_PROTOCOL_MESSAGES_H_
