#include "tests/sim/sim_link.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::sim {

SimLink::SimLink(Scheduler* scheduler, Process* process, ControlNet* net, const Hello& hello)
    : scheduler_(*scheduler), process_(process), net_(*net), state_(hello) {
  Step(Attend{});
}

bool SimLink::Await(absl::Duration timeout, const std::function<bool()>& condition) {
  return scheduler_.Await(process_, process_->Now() + timeout, condition);
}

absl::Status SimLink::AwaitWelcome(absl::Duration timeout) {
  Await(timeout, [this] { return state_.over() || state_.has_attended(); });
  if (state_.has_attended()) return absl::OkStatus();
  if (state_.over()) return state_.end();
  return absl::UnavailableError(absl::StrCat("not welcomed: ", state_.last_break().message()));
}

absl::StatusOr<Proposal> SimLink::AwaitProposal(absl::Duration timeout) {
  std::optional<Proposal> proposal;
  Await(timeout, [&] {
    return state_.over() || (proposal = state_.TakeProposal()).has_value();
  });
  if (proposal.has_value()) {
    if (on_proposal_) on_proposal_(*proposal);
    return *std::move(proposal);
  }
  if (state_.over()) return state_.end();
  if (!state_.attending()) {
    return absl::UnavailableError(
        absl::StrCat("no coordinator: ", state_.last_break().message()));
  }
  return absl::DeadlineExceededError(absl::StrCat("no proposal: ", state_.waiting_for()));
}

absl::StatusOr<std::string> SimLink::ExchangeEndpoint(Epoch epoch,
                                                      const std::optional<std::string>& mine,
                                                      absl::Duration timeout) {
  if (mine.has_value()) Step(EndpointOffered{epoch, *mine});
  const bool decided = Await(timeout, [&] {
    return !state_.EpochStatus(epoch).ok() || state_.endpoint().has_value();
  });
  if (!decided) return absl::DeadlineExceededError("no endpoint from rank 0");
  const absl::Status status = state_.EpochStatus(epoch);
  if (!status.ok()) return status;
  return *state_.endpoint();
}

absl::Status SimLink::AwaitStart(const Ready& ready, absl::Duration timeout) {
  Step(BecameReady{ready});
  const bool decided = Await(timeout, [&] {
    return !state_.EpochStatus(ready.epoch).ok() || state_.started();
  });
  if (!decided) return absl::DeadlineExceededError("the epoch does not start");
  return state_.EpochStatus(ready.epoch);
}

std::vector<ControlEntry> SimLink::EntriesAfter(LogNumber after) {
  return state_.EntriesAfter(after);
}

void SimLink::ReportProgress(std::int64_t step, Phase phase,
                             const std::map<std::string, double>& metrics,
                             const SyncCounters& sync) {
  Step(ProgressMade{step, phase, metrics, sync});
}

absl::StatusOr<Revision> SimLink::RevisePolicy(const SyncPolicy&, const std::string&,
                                               absl::Duration) {
  return absl::UnimplementedError("in the simulation clients revise the policy");
}

void SimLink::ReportApplied(LogNumber number, std::int64_t step) {
  Step(EntryTookEffect{number, step});
}

void SimLink::ReportStopped(Epoch epoch, std::int64_t step, const absl::Status& why) {
  Step(EpochStopping{epoch, step, why});
}

void SimLink::OnAbort(std::function<void(const absl::Status&)> callback) {
  callback_ = std::move(callback);
  called_back_for_ = Epoch();
  CallBackIfDue();
}

void SimLink::Leave(const absl::Status& why) {
  if (std::exchange(left_, true) || !process_->alive()) return;
  callback_ = nullptr;
  Step(Leaving{why});
  scheduler_.AwaitToEnd(process_, process_->Now() + 2 * kLeaveTimeout,
                        [this] { return state_.over(); });
}

void SimLink::Step(const AttendanceEvent& event) {
  if (!process_->alive()) return;
  AttendanceEffects effects = state_.Step(process_->Now(), event);
  if (effects.drop || effects.dial != 0) net_.Drop(std::exchange(wire_, 0));
  if (effects.dial != 0) {
    const std::int64_t number = effects.dial;
    wire_ = net_.Dial({.process = process_,
                       .on_message = [this, number](CoordinatorMessage message) {
                         Step(Received{number, std::move(message)});
                       },
                       .on_end = [this, number](const absl::Status& why) {
                         Step(StreamEnded{number, why});
                       }});
  }
  for (WorkerMessage& message : effects.send) net_.SendUp(wire_, std::move(message));
  if (effects.close) net_.CloseUp(wire_);
  WakeInTime();
  CallBackIfDue();
  scheduler_.Wake(process_);
}

void SimLink::WakeInTime() {
  const MonoTime at = process_->GlobalTime(state_.wake_at());
  if (at == wakes_at_ || at == MonoTime::Infinite()) return;
  wakes_at_ = at;
  scheduler_.At(at, process_, [this, at] {
    if (wakes_at_ != at) return;
    wakes_at_ = MonoTime::Infinite();
    Step(TimePassed{});
  });
}

// By the link's own thread, thus a moment later.
void SimLink::CallBackIfDue() {
  const auto is_due = [this] {
    return callback_ && state_.taken_was_aborted() && called_back_for_ != state_.taken()->epoch;
  };
  if (!is_due()) return;
  scheduler_.After(scheduler_.Random(absl::ZeroDuration(), absl::Milliseconds(1)), process_,
                   [this, is_due] {
                     if (!is_due()) return;
                     called_back_for_ = state_.taken()->epoch;
                     callback_(state_.taken_end());
                   });
}

}  // namespace lockstep::sim
