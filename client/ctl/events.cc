#include "client/ctl/events.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/ctl/progress.h"
#include "client/ctl/table.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Kind = JobEvent::Kind;

struct KindInfo {
  const char* name;
  Style style;
};

KindInfo InfoOf(Kind kind) {
  switch (kind) {
    case Kind::kNow:
      return {"now", Style::kPlain};
    case Kind::kWorkerJoined:
      return {"worker-joined", Style::kGood};
    case Kind::kWorkerSuspect:
      return {"worker-suspect", Style::kBad};
    case Kind::kWorkerBack:
      return {"worker-back", Style::kGood};
    case Kind::kWorkerLost:
      return {"worker-lost", Style::kBad};
    case Kind::kWorkerLeft:
      return {"worker-left", Style::kPlain};
    case Kind::kWorkerDrained:
      return {"worker-drained", Style::kPending};
    case Kind::kEpochProposed:
      return {"epoch-proposed", Style::kPending};
    case Kind::kEpochStarted:
      return {"epoch-started", Style::kGood};
    case Kind::kEpochEnded:
      return {"epoch-ended", Style::kPending};
    case Kind::kPolicyRevised:
      return {"policy-revised", Style::kPending};
    case Kind::kPolicyEffective:
      return {"policy-effective", Style::kGood};
    case Kind::kJobState:
      return {"job-state", Style::kPlain};
    case Kind::kDeleted:
      return {"deleted", Style::kBad};
  }
  return {"unknown", Style::kPlain};
}

constexpr std::size_t kKindWidth = 16;

using Workers = std::map<std::string, const v1::Worker*>;

Workers WorkersOf(const v1::WatchJobResponse& state) {
  Workers workers;
  for (const v1::Worker& worker : state.workers()) workers.emplace(worker.name(), &worker);
  return workers;
}

bool HasEpoch(const v1::Job& job) { return job.state() != v1::Job::STATE_WAITING; }

// The epoch that `before` shows is over.
bool HasEnded(const v1::Job& before, const v1::Job& after) {
  return HasEpoch(before) && (after.epoch() != before.epoch() || !HasEpoch(after));
}

// Only the detail tells that an epoch is to end, or ended, as its members agreed.
bool IsRegrouped(const v1::Job& before, const v1::Job& after) {
  return absl::StrContains(before.detail(), "; regroups as entry ") ||
         (!HasEpoch(after) && absl::StrContains(after.detail(), " ended: regrouped behind step "));
}

bool HasFinished(const v1::Job& after) {
  return !HasEpoch(after) && absl::StrContains(after.detail(), " ended: all members finished");
}

// Of a worker that is not there any more.
JobEvent Departure(const v1::Worker& worker, const v1::Job& before, const v1::Job& after) {
  const std::string who = absl::StrCat("worker ", worker.name());
  if (worker.state() == v1::Worker::STATE_SUSPECT) {
    return {Kind::kWorkerLost, absl::StrCat(who, " is lost: it did not come back"), worker.name()};
  }
  if (worker.rank() < 0) {
    return {Kind::kWorkerLeft, absl::StrCat(who, " does not attend any more"), worker.name()};
  }
  if (HasEnded(before, after) && IsRegrouped(before, after)) {
    return {Kind::kWorkerDrained,
            absl::StrCat(who, " was drained behind step ", worker.step()), worker.name()};
  }
  if (HasFinished(after)) {
    return {Kind::kWorkerLeft, absl::StrCat(who, " finished at step ", worker.step()),
            worker.name()};
  }
  return {Kind::kWorkerLost, absl::StrCat(who, " is gone, last seen at step ", worker.step()),
          worker.name()};
}

void AppendDepartures(const v1::WatchJobResponse& before, const v1::WatchJobResponse& after,
                      std::vector<JobEvent>& events) {
  const Workers now = WorkersOf(after);
  for (const auto& [name, was] : WorkersOf(before)) {
    const auto it = now.find(name);
    if (it == now.end()) {
      // That it left was told when it did.
      if (was->state() == v1::Worker::STATE_LEFT) continue;
      events.push_back(Departure(*was, before.job(), after.job()));
      continue;
    }
    const v1::Worker& is = *it->second;
    if (is.state() == was->state() || is.incarnation() != was->incarnation()) continue;
    if (is.state() == v1::Worker::STATE_SUSPECT) {
      events.push_back({Kind::kWorkerSuspect,
                        absl::StrCat("worker ", name,
                                     " is suspect: its connection broke, its lease still runs"),
                        name});
    } else if (is.state() == v1::Worker::STATE_LEFT) {
      events.push_back({Kind::kWorkerLeft,
                        absl::StrCat("worker ", name, " finished at step ", is.step()), name});
    }
  }
}

void AppendArrivals(const v1::WatchJobResponse& before, const v1::WatchJobResponse& after,
                    std::vector<JobEvent>& events) {
  const Workers past = WorkersOf(before);
  for (const auto& [name, is] : WorkersOf(after)) {
    const auto it = past.find(name);
    if (it == past.end()) {
      events.push_back({Kind::kWorkerJoined, absl::StrCat("worker ", name, " attends"), name});
    } else if (it->second->incarnation() != is->incarnation()) {
      events.push_back({Kind::kWorkerJoined,
                        absl::StrCat("worker ", name, " attends, started again"), name});
    } else if (it->second->state() == v1::Worker::STATE_SUSPECT &&
               is->state() != v1::Worker::STATE_SUSPECT &&
               is->state() != v1::Worker::STATE_LEFT) {
      events.push_back({Kind::kWorkerBack, absl::StrCat("worker ", name, " is back"), name});
    }
  }
}

// "epoch 3", "epochs 3 to 5".
std::string Numbered(absl::string_view what, std::int64_t first, std::int64_t last) {
  if (first == last) return absl::StrCat(what, " ", first);
  return absl::StrCat(what, "s ", first, " to ", last);
}

void AppendEpochEnd(const v1::Job& before, const v1::Job& after, std::vector<JobEvent>& events) {
  if (HasEnded(before, after)) {
    const char* const when = before.state() == v1::Job::STATE_FORMING ? " before it was seen to run"
                                                                      : "";
    events.push_back({Kind::kEpochEnded,
                      absl::StrCat("epoch ", before.epoch(), " ended", when,
                                   HasEpoch(after) ? "" : absl::StrCat(": ", after.detail()))});
  }
  // The last of those that are new is there to be seen if the job has an epoch.
  const std::int64_t last = after.epoch() - (HasEpoch(after) ? 1 : 0);
  if (last > before.epoch()) {
    events.push_back({Kind::kEpochEnded, absl::StrCat(Numbered("epoch", before.epoch() + 1, last),
                                                      " came and went between two looks")});
  }
}

void AppendNewEpoch(const v1::WatchJobResponse& before, const v1::WatchJobResponse& after,
                    std::vector<JobEvent>& events) {
  const v1::Job& job = after.job();
  if (!HasEpoch(job)) return;
  const bool is_new = job.epoch() != before.job().epoch();
  if (is_new) {
    const auto members =
        std::count_if(after.workers().begin(), after.workers().end(),
                      [](const v1::Worker& worker) { return worker.rank() >= 0; });
    events.push_back({Kind::kEpochProposed,
                      absl::StrCat("epoch ", job.epoch(), " is proposed to ", members,
                                   members == 1 ? " worker" : " workers")});
  }
  if (job.state() == v1::Job::STATE_RUNNING &&
      (is_new || before.job().state() != v1::Job::STATE_RUNNING)) {
    events.push_back({Kind::kEpochStarted,
                      absl::StrCat("epoch ", job.epoch(), " runs from step ", job.step())});
  }
}

void AppendPolicies(const v1::SyncPolicyRevision& before, const v1::SyncPolicyRevision& after,
                    std::vector<JobEvent>& events) {
  const bool is_new = after.revision() > before.revision();
  if (is_new) {
    events.push_back(
        {Kind::kPolicyRevised,
         absl::StrCat(Numbered("policy revision", before.revision() + 1, after.revision()),
                      after.author().empty() ? "" : absl::StrCat(", by ", after.author()),
                      after.reason().empty() ? "" : absl::StrCat(", because: ", after.reason()))});
  }
  const bool is_effective = after.state() == v1::SyncPolicyRevision::STATE_EFFECTIVE;
  if (is_effective && (is_new || before.state() != after.state())) {
    events.push_back({Kind::kPolicyEffective,
                      absl::StrCat("policy revision ", after.revision(),
                                   " is effective after step ", after.effective_step())});
  }
}

}  // namespace

std::string KindName(JobEvent::Kind kind) { return InfoOf(kind).name; }
Style StyleOf(JobEvent::Kind kind) { return InfoOf(kind).style; }

JobEvent FirstEvent(const v1::WatchJobResponse& state) {
  return {Kind::kNow, absl::StrCat("job ", state.job().spec().name(), ": ", WatchLine(state))};
}

JobEvent DeletedEvent(const v1::WatchJobResponse& last) {
  return {Kind::kDeleted, absl::StrCat("job ", last.job().spec().name(), " was deleted")};
}

std::vector<JobEvent> EventsBetween(const v1::WatchJobResponse& before,
                                    const v1::WatchJobResponse& after) {
  std::vector<JobEvent> events;
  AppendDepartures(before, after, events);
  AppendEpochEnd(before.job(), after.job(), events);
  AppendArrivals(before, after, events);
  AppendNewEpoch(before, after, events);
  AppendPolicies(before.job().policy(), after.job().policy(), events);
  if (before.job().state() != after.job().state()) {
    events.push_back({Kind::kJobState, absl::StrCat("job is ", StateName(after.job().state()),
                                                    ": ", after.job().detail())});
  }
  return events;
}

std::string RenderEvent(const JobEvent& event, absl::Time seen, Color color) {
  const std::string kind = KindName(event.kind);
  const std::string padding(kKindWidth - std::min(kKindWidth, kind.size()), ' ');
  return absl::StrCat(
      absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", seen, absl::UTCTimeZone()), "  ",
      Paint(kind, StyleOf(event.kind), color), padding, "  ", OneLine(event.text), "\n");
}

std::string RenderEventJson(const JobEvent& event, absl::Time seen) {
  nlohmann::json json = {
      {"time", absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", seen, absl::UTCTimeZone())},
      {"kind", KindName(event.kind)},
      {"text", event.text}};
  if (!event.worker.empty()) json["worker"] = event.worker;
  return absl::StrCat(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

}  // namespace lockstep
