// What happened in a job between two looks at it.
//
// A look is a WatchJobResponse: the newest state, not every state. What came and went in
// between is not told, but for epochs and revisions that were passed over. Pure; thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_EVENTS_H_
#define LOCKSTEP_CLIENT_CTL_EVENTS_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/ctl/style.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep {

struct JobEvent {
  enum class Kind {
    kNow,  // what the first look saw; no event yet
    kWorkerJoined,
    kWorkerSuspect,
    kWorkerBack,
    kWorkerLost,
    kWorkerLeft,
    kWorkerDrained,
    kEpochProposed,
    kEpochStarted,
    kEpochEnded,
    kPolicyRevised,
    kPolicyEffective,
    kJobState,
    kDeleted,
  };
  Kind kind = Kind::kNow;
  std::string text;
  std::string worker = "";  // whom it is about, if about one

  bool operator==(const JobEvent&) const = default;
};

// "worker-joined" of kWorkerJoined.
std::string KindName(JobEvent::Kind kind);
Style StyleOf(JobEvent::Kind kind);

// What there is at the first look.
JobEvent FirstEvent(const v1::WatchJobResponse& state);
JobEvent DeletedEvent(const v1::WatchJobResponse& last);

// In an order in which it may have happened: workers that go, the end of an epoch, workers that
// come, a new epoch, policies, then the job's state.
std::vector<JobEvent> EventsBetween(const v1::WatchJobResponse& before,
                                    const v1::WatchJobResponse& after);

// "2026-03-01T12:00:00.250Z  worker-joined     worker w1 attends", or an object with time, kind,
// text and, if there is one, worker; each with a line break.
std::string RenderEvent(const JobEvent& event, absl::Time seen, Color color);
std::string RenderEventJson(const JobEvent& event, absl::Time seen);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_EVENTS_H_
