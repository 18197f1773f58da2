// AttendanceState: what a worker knows of its job, and when it dials, sends and
// beats. Events in, effects out.
//
// No threads, clock or I/O: attendance.h carries the effects out. Messages may
// come twice or late; what is stale changes nothing. Thread-compatible.
//
//   waiting --redial time--> dialled --Welcome--> attending
//      ^                        |                     |
//      +---- stream broke ------+---------------------+
//   any --a status that is no break--> over
//   any --Leaving--> the same, with Leave as the last message --its end--> over
#ifndef LOCKSTEP_WORKER_AGENT_ATTENDANCE_STATE_H_
#define LOCKSTEP_WORKER_AGENT_ATTENDANCE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/mono_time.h"
#include "common/base/prng.h"
#include "common/protocol/messages.h"

namespace lockstep {

// Bounds. Of the applied entries the newest are repeated after a reconnect.
inline constexpr std::size_t kMaxRepeatedApplied = 256;
inline constexpr std::size_t kMaxLogEntries = 10'000;

// Time between attempts to dial: doubled each time, of which the second half is
// random, so that the workers of a job do not return all at once.
inline constexpr absl::Duration kMinRedialDelay = absl::Milliseconds(50);
inline constexpr absl::Duration kMaxRedialDelay = absl::Seconds(2);
// A stream without Welcome for this long counts as broken.
inline constexpr absl::Duration kWelcomeTimeout = absl::Seconds(10);
// A leave that the coordinator has not answered by then is given up.
inline constexpr absl::Duration kLeaveTimeout = absl::Seconds(1);

// Whether a stream that ended with `status` may be dialled again: the connection
// or the coordinator went away, which says nothing about this worker.
bool IsBreak(const absl::Status& status);

// ---- events ----

struct Attend {};  // once, the first
struct Received {
  std::int64_t stream = 0;
  CoordinatorMessage message;
};
struct StreamEnded {
  std::int64_t stream = 0;
  absl::Status status;
};
struct ProgressMade {
  std::int64_t step = 0;
  Phase phase = Phase::kUnspecified;
  std::map<std::string, double> metrics;
  SyncCounters sync;
};
struct EntryTookEffect {
  LogNumber number;
  std::int64_t step = 0;
};
struct EpochStopping {
  Epoch epoch;
  std::int64_t step = 0;
  absl::Status why;
};
struct EndpointOffered {
  Epoch epoch;
  std::string bytes;
};
struct BecameReady {
  Ready ready;
};
struct Leaving {
  absl::Status why;
};
struct TimePassed {};  // at wake_at() or later

using AttendanceEvent = std::variant<Attend, Received, StreamEnded, ProgressMade, EntryTookEffect,
                                     EpochStopping, EndpointOffered, BecameReady, Leaving,
                                     TimePassed>;

// To be carried out in this order.
struct AttendanceEffects {
  bool drop = false;                // give up the open stream
  std::int64_t dial = 0;            // if not 0: open a stream, called by this number
  std::vector<WorkerMessage> send;  // on the open stream
  bool close = false;               // nothing follows on the open stream
};

class AttendanceState {
 public:
  // `hello` as it is said at first: no epoch.
  explicit AttendanceState(Hello hello);

  AttendanceEffects Step(MonoTime now, const AttendanceEvent& event);
  // The earliest time at which TimePassed has an effect.
  MonoTime wake_at() const;

  // The newest proposal, once, while its epoch lasts.
  std::optional<Proposal> TakeProposal();
  // The last one taken; and OK, or why it is over.
  const std::optional<Proposal>& taken() const { return taken_; }
  const absl::Status& taken_end() const { return taken_end_; }
  // Whether it was not this worker that ended it.
  bool taken_was_aborted() const { return !taken_end_.ok() && !taken_stopped_; }

  // OK while `epoch` is the newest and lasts; else Aborted or why the link ended.
  absl::Status EpochStatus(Epoch epoch) const;
  // Of the newest epoch.
  const std::optional<std::string>& endpoint() const { return endpoint_; }
  bool started() const { return started_; }

  // The entries that follow `after` without a gap.
  std::vector<ControlEntry> EntriesAfter(LogNumber after) const;

  // What the job waits for, as the coordinator last told; empty: not known, or an
  // epoch was proposed since.
  const std::string& waiting_for() const { return waiting_for_; }

  bool attending() const { return welcomed_; }
  // The coordinator took this worker in, on this stream or an earlier one.
  bool has_attended() const { return generation_.valid(); }
  // Why the last stream ended; OK: none did.
  const absl::Status& last_break() const { return last_break_; }
  // The link ended for good.
  bool over() const { return !end_.ok(); }
  const absl::Status& end() const { return end_; }

 private:
  AttendanceEffects On(MonoTime now, const Attend&);
  AttendanceEffects On(MonoTime now, const Received&);
  AttendanceEffects On(MonoTime now, const StreamEnded&);
  AttendanceEffects On(MonoTime now, const ProgressMade&);
  AttendanceEffects On(MonoTime now, const EntryTookEffect&);
  AttendanceEffects On(MonoTime now, const EpochStopping&);
  AttendanceEffects On(MonoTime now, const EndpointOffered&);
  AttendanceEffects On(MonoTime now, const BecameReady&);
  AttendanceEffects On(MonoTime now, const Leaving&);
  AttendanceEffects On(MonoTime now, const TimePassed&);

  AttendanceEffects Hear(MonoTime now, const Welcome&);
  AttendanceEffects Hear(MonoTime now, const Waiting&);
  AttendanceEffects Hear(MonoTime now, const Proposal&);
  AttendanceEffects Hear(MonoTime now, const Endpoint&);
  AttendanceEffects Hear(MonoTime now, const Start&);
  AttendanceEffects Hear(MonoTime now, const NewEntries&);
  AttendanceEffects Hear(MonoTime now, const AbortEpoch&);

  AttendanceEffects Dial(MonoTime now);
  AttendanceEffects Break(MonoTime now, const absl::Status& why);
  AttendanceEffects Fail(const absl::Status& why);
  AttendanceEffects FinishLeaving();
  Heartbeat NewHeartbeat() const;
  AttendanceEffects SendIfDialled(WorkerMessage message) const;
  void EndEpoch(const absl::Status& why);
  // The newest epoch if it lasts, else none.
  Epoch LastingEpoch() const;
  // That of which the coordinator still counts this worker a member, as far as known.
  Epoch MemberOf() const;

  const Hello hello_;
  Prng prng_;

  std::int64_t dialled_ = 0;  // streams opened so far; the last one's number
  bool open_ = false;         // the last one lasts
  bool welcomed_ = false;     // on the last one
  int failures_ = 0;          // since the last Welcome
  MonoTime welcome_by_;       // while open and not welcomed
  MonoTime redial_at_;        // while not open
  MonoTime heartbeat_at_;     // while welcomed
  absl::Duration heartbeat_interval_;
  Generation generation_;
  std::string waiting_for_;
  absl::Status last_break_;
  absl::Status end_;
  std::optional<absl::Status> leaving_;
  MonoTime leave_by_;  // while leaving

  // The newest epoch. What was said in it and is not known to have arrived is
  // said again after a reconnect: the coordinator takes it twice as once.
  std::optional<Proposal> proposal_;
  absl::Status proposal_end_;
  std::optional<std::string> my_endpoint_;
  std::optional<std::string> endpoint_;
  std::optional<Ready> ready_;
  bool started_ = false;
  std::deque<Applied> applied_;
  std::optional<EpochStopped> stopped_;  // until the coordinator says that it is over

  std::optional<Proposal> taken_;
  absl::Status taken_end_;
  bool taken_stopped_ = false;

  // Consecutive; the last one is newest_. Before the first entry or proposal
  // newest_ is unknown, and the log may begin anywhere.
  std::deque<ControlEntry> log_;
  std::optional<LogNumber> newest_;

  ProgressMade progress_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_ATTENDANCE_STATE_H_
