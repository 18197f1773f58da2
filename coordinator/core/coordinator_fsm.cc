#include "coordinator/core/coordinator_fsm.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "coordinator/core/fold.h"
#include "coordinator/core/membership.h"

namespace lockstep {
absl::StatusOr<CoordinatorFsm> CoordinatorFsm::Recover(std::span<const Record> records,
                                                       MonoTime now) {
  CoordinatorFsm fsm;
  fsm.now_ = now;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const absl::Status applied = Apply(records[i], fsm.state_);
    if (!applied.ok()) {
      return absl::DataLossError(absl::StrCat("record ", i + 1, " of ", records.size(),
                                              " contradicts those before it: ",
                                              applied.message()));
    }
  }
  for (auto& [name, job] : fsm.state_.jobs) {
    if (job.epoch) {
      job.epoch->ready_deadline = now + job.spec.ready_timeout;
      for (const Member& member : job.epoch->members) {
        const bool has_left = job.epoch->left.contains(member.worker);
        job.workers[member.worker] = {
            .name = member.worker,
            .stage = has_left ? WorkerStage::kLeft : WorkerStage::kSuspect,
            .incarnation = member.incarnation,
            .last_heard = now,
            .manifest = *job.manifest,
            .is_presumed = true};
      }
    }
    job.detail = DescribeJob(job);
    fsm.wake_[name] = NextDeadline(job);
  }
  return fsm;
}

Effects CoordinatorFsm::Begin() {
  Effects out;
  Persist(GenerationStarted{state_.generation.next()}, out);
  for (auto& [name, job] : state_.jobs) {
    if (job.stage == JobStage::kForming) {
      // Whether its members are there is not known; those that are greet again.
      for (const Member& member : job.epoch->members) job.workers.erase(member.worker);
      EndEpoch(job, absl::UnavailableError("the coordinator was started again before all were "
                                           "ready"),
               out);
    }
    // Those that are worth a wait; see FindCandidates().
    if (job.stage == JobStage::kWaiting && job.spec.optimizer_replicas > 1) {
      for (const auto& [holder, incarnation] : job.holders) {
        if (!incarnation.valid() || IsDrained(job, holder, incarnation)) continue;
        job.workers[holder] = {.name = holder,
                               .stage = WorkerStage::kSuspect,
                               .incarnation = incarnation,
                               .last_heard = now_,
                               .manifest = *job.manifest,
                               .is_presumed = true};
      }
    }
    job.detail = DescribeJob(job);
    wake_[name] = NextDeadline(job);
  }
  out.wake_at = WakeAt();
  return out;
}

Effects CoordinatorFsm::Step(MonoTime now, std::span<const Event> events) {
  Effects out;
  now_ = now;
  for (const Event& event : events) {
    const bool is_of_a_worker = std::holds_alternative<MessageReceived>(event) ||
                                std::holds_alternative<StreamBroke>(event);
    if (!is_of_a_worker) SettleAll(now, out);
    std::visit([&](const auto& e) { On(now, e, out); }, event);
  }
  SettleAll(now, out);
  out.wake_at = WakeAt();
  return out;
}

void CoordinatorFsm::SettleAll(MonoTime now, Effects& out) {
  for (const std::string& name : std::exchange(unsettled_, {})) {
    const auto it = state_.jobs.find(name);
    if (it != state_.jobs.end()) Settle(now, it->second, out);
    out.changed_jobs.insert(name);
    out.settled_jobs.insert(name);
  }
}

void CoordinatorFsm::Persist(Record record, Effects& out) {
  LOCKSTEP_CHECK(Apply(record, state_).ok());
  out.persist.push_back(std::move(record));
}

void CoordinatorFsm::Settle(MonoTime now, JobState& job, Effects& out) {
  EndIfAllStopped(job, out);
  if (job.stage == JobStage::kWaiting) FormIfPossible(now, job, out);
  if (job.stage == JobStage::kForming) StartIfReady(job, out);
  RegroupIfWorkersWait(now, job, out);
  SendNewEntries(job, out);
  job.detail = DescribeJob(job);
  wake_[job.spec.name] = NextDeadline(job);
}

std::optional<MonoTime> CoordinatorFsm::WakeAt() const {
  MonoTime earliest = MonoTime::Infinite();
  for (const auto& [job, time] : wake_) earliest = std::min(earliest, time);
  if (earliest == MonoTime::Infinite()) return std::nullopt;
  return earliest;
}

void CoordinatorFsm::On(MonoTime now, const RequestReceived& event, Effects& out) {
  absl::StatusOr<Reply> reply =
      std::visit([&](const auto& r) { return Do(event.wall_time, r, out); }, event.request);
  out.answers.push_back({event.id, std::move(reply)});
  SettleAll(now, out);
}

void CoordinatorFsm::On(MonoTime now, const MessageReceived& event, Effects& out) {
  if (const auto* hello = std::get_if<Hello>(&event.message)) {
    Greet(now, event.stream, *hello, out);
    return;
  }
  const auto attendee = streams_.find(event.stream);
  if (attendee == streams_.end()) return;
  JobState& job = state_.jobs.at(attendee->second.job);
  WorkerState& worker = job.workers.at(attendee->second.worker);
  const bool is_back = worker.stage == WorkerStage::kAttending && IsSilent(job, worker, now) &&
                       (worker.is_survivor || job.stage == JobStage::kRunning);
  worker.last_heard = now;
  if (const auto* heartbeat = std::get_if<Heartbeat>(&event.message)) {
    // Frequent, and else no cause for anything to form or start.
    Hear(job, worker, *heartbeat, out);
    if (is_back) unsettled_.insert(job.spec.name);
    out.changed_jobs.insert(job.spec.name);
    return;
  }
  std::visit(
      [&](const auto& message) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(message)>, Hello>) {
          Hear(job, worker, message, out);
        }
      },
      event.message);
  unsettled_.insert(job.spec.name);
}

void CoordinatorFsm::On(MonoTime now, const StreamBroke& event, Effects& out) {
  const auto attendee = streams_.find(event.stream);
  if (attendee == streams_.end()) return;
  JobState& job = state_.jobs.at(attendee->second.job);
  WorkerState& worker = job.workers.at(attendee->second.worker);
  streams_.erase(attendee);
  worker.stream = StreamId();
  worker.stage = WorkerStage::kSuspect;
  worker.broke_at = now;
  unsettled_.insert(job.spec.name);
}

void CoordinatorFsm::On(MonoTime now, const Tick&, Effects& out) {
  for (auto& [name, job] : state_.jobs) {
    if (now < wake_[name]) continue;
    bool changed = false;
    for (const std::optional<MonoTime>& time : {job.window_end, job.regroup_at, job.retry_at}) {
      changed = changed || (time && now >= *time);
    }
    changed = ExpireLeases(now, job, out) || changed;
    changed = ExpireReadiness(now, job, out) || changed;
    changed = ExpireReturns(now, job, out) || changed;
    changed = ExpireStalls(now, job, out) || changed;
    if (changed) {
      unsettled_.insert(name);
    } else {
      wake_[name] = NextDeadline(job);
    }
  }
}

}  // namespace lockstep
