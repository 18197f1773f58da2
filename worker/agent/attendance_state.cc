#include "worker/agent/attendance_state.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

absl::Status EpochIsOver(Epoch epoch, absl::string_view why) {
  return absl::AbortedError(absl::StrCat("epoch ", epoch.value(), " is over: ", why));
}

}  // namespace

bool IsBreak(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInternal:  // gRPC's word for a reset of the stream
      return true;
    default:
      return false;
  }
}

AttendanceState::AttendanceState(Hello hello)
    : hello_(std::move(hello)),
      prng_(static_cast<std::uint64_t>(hello_.incarnation.value())),
      redial_at_(MonoTime::Infinite()) {
  progress_.phase = Phase::kJoining;
}

AttendanceEffects AttendanceState::Step(MonoTime now, const AttendanceEvent& event) {
  if (over()) return {};
  return std::visit([&](const auto& e) { return On(now, e); }, event);
}

MonoTime AttendanceState::wake_at() const {
  if (over()) return MonoTime::Infinite();
  if (leaving_) return open_ ? leave_by_ : std::min(leave_by_, redial_at_);
  if (!open_) return redial_at_;
  return welcomed_ ? heartbeat_at_ : welcome_by_;
}

std::optional<Proposal> AttendanceState::TakeProposal() {
  const bool is_new = proposal_.has_value() && (!taken_ || taken_->epoch < proposal_->epoch);
  if (!is_new || over() || !proposal_end_.ok()) return std::nullopt;
  taken_ = proposal_;
  taken_end_ = absl::OkStatus();
  taken_stopped_ = false;
  return taken_;
}

absl::Status AttendanceState::EpochStatus(Epoch epoch) const {
  if (over()) return end_;
  if (taken_ && taken_->epoch == epoch && !taken_end_.ok()) return taken_end_;
  if (proposal_ && proposal_->epoch == epoch) return proposal_end_;
  return EpochIsOver(epoch, "it is not the newest that was proposed to this worker");
}

std::vector<ControlEntry> AttendanceState::EntriesAfter(LogNumber after) const {
  if (log_.empty() || after.next() < log_.front().number || after >= log_.back().number) {
    return {};
  }
  const auto skipped = after.next().value() - log_.front().number.value();
  return {log_.begin() + skipped, log_.end()};
}

Epoch AttendanceState::LastingEpoch() const {
  return proposal_ && proposal_end_.ok() ? proposal_->epoch : Epoch();
}

Epoch AttendanceState::MemberOf() const { return stopped_ ? stopped_->epoch : LastingEpoch(); }

void AttendanceState::EndEpoch(const absl::Status& why) {
  if (!proposal_ || !proposal_end_.ok()) return;
  proposal_end_ = why;
  if (taken_ && taken_->epoch == proposal_->epoch) taken_end_ = why;
}

AttendanceEffects AttendanceState::Dial(MonoTime now) {
  open_ = true;
  ++dialled_;
  welcome_by_ = now + kWelcomeTimeout;
  AttendanceEffects effects;
  effects.dial = dialled_;
  Hello hello = hello_;
  hello.epoch = MemberOf();
  hello.log_number = newest_.value_or(LogNumber());
  effects.send.push_back(std::move(hello));
  if (LastingEpoch().valid()) {
    if (my_endpoint_ && !endpoint_) {
      effects.send.push_back(Endpoint{LastingEpoch(), *my_endpoint_});
    }
    if (ready_ && !started_) effects.send.push_back(*ready_);
  }
  if (MemberOf().valid()) {
    for (const Applied& applied : applied_) effects.send.push_back(applied);
  }
  if (stopped_) effects.send.push_back(*stopped_);
  if (leaving_) {
    effects.send.push_back(Leave{MemberOf(), *leaving_});
    effects.close = true;
  }
  return effects;
}

AttendanceEffects AttendanceState::Break(MonoTime now, const absl::Status& why) {
  last_break_ = why;
  open_ = false;
  welcomed_ = false;
  absl::Duration delay = kMinRedialDelay;
  for (int i = 0; i < failures_ && delay < kMaxRedialDelay; ++i) delay *= 2;
  delay = std::min(delay, kMaxRedialDelay);
  ++failures_;
  redial_at_ = now + delay * (0.5 + 0.5 * prng_.Unit());
  return {.drop = true};
}

AttendanceEffects AttendanceState::Fail(const absl::Status& why) {
  end_ = why;
  open_ = false;
  welcomed_ = false;
  EndEpoch(why);
  return {.drop = true};
}

AttendanceEffects AttendanceState::FinishLeaving() {
  end_ = absl::CancelledError("this worker left the job");
  open_ = false;
  welcomed_ = false;
  return {.drop = true};
}

AttendanceEffects AttendanceState::SendIfDialled(WorkerMessage message) const {
  AttendanceEffects effects;
  if (open_ && !leaving_) effects.send.push_back(std::move(message));
  return effects;
}

AttendanceEffects AttendanceState::On(MonoTime now, const Attend&) { return Dial(now); }

AttendanceEffects AttendanceState::On(MonoTime now, const Received& event) {
  if (!open_ || event.stream != dialled_ || leaving_) return {};
  return std::visit([&](const auto& message) { return Hear(now, message); }, event.message);
}

AttendanceEffects AttendanceState::On(MonoTime now, const StreamEnded& event) {
  if (!open_ || event.stream != dialled_) return {};
  // Only a lost connection leaves it open whether Leave arrived; to say it again
  // after any other end would mean to join again.
  if (leaving_ && !absl::IsUnavailable(event.status)) return FinishLeaving();
  if (event.status.ok()) {
    return Break(now, absl::UnavailableError("the coordinator ended the stream"));
  }
  return IsBreak(event.status) ? Break(now, event.status) : Fail(event.status);
}

AttendanceEffects AttendanceState::On(MonoTime now, const ProgressMade& event) {
  progress_ = event;
  // What the coordinator would refuse is left out: it must not cost the link.
  std::erase_if(progress_.metrics, [](const auto& metric) {
    const std::string& name = metric.first;
    return name.empty() || name.size() > std::size_t{kMaxMetricNameBytes} || !IsPrintable(name);
  });
  while (progress_.metrics.size() > std::size_t{kMaxMetrics}) {
    progress_.metrics.erase(std::prev(progress_.metrics.end()));
  }
  return {};
}

AttendanceEffects AttendanceState::On(MonoTime now, const EntryTookEffect& event) {
  if (!LastingEpoch().valid()) return {};
  const Applied applied = {LastingEpoch(), event.number, event.step};
  applied_.push_back(applied);
  if (applied_.size() > kMaxRepeatedApplied) applied_.pop_front();
  return SendIfDialled(applied);
}

AttendanceEffects AttendanceState::On(MonoTime now, const EpochStopping& event) {
  if (!event.epoch.valid() || event.epoch != LastingEpoch()) return {};
  stopped_ = {event.epoch, event.step, event.why};
  progress_.step = event.step;
  taken_stopped_ = taken_ && taken_->epoch == event.epoch;
  EndEpoch(EpochIsOver(event.epoch,
                       event.why.ok() ? absl::StrCat("it regroups behind step ", event.step)
                                      : absl::StrCat("this worker has stopped: ",
                                                     event.why.message())));
  return SendIfDialled(*stopped_);
}

AttendanceEffects AttendanceState::On(MonoTime now, const EndpointOffered& event) {
  if (event.epoch != LastingEpoch()) return {};
  my_endpoint_ = event.bytes;
  return SendIfDialled(Endpoint{event.epoch, event.bytes});
}

AttendanceEffects AttendanceState::On(MonoTime now, const BecameReady& event) {
  if (event.ready.epoch != LastingEpoch()) return {};
  ready_ = event.ready;
  return SendIfDialled(event.ready);
}

AttendanceEffects AttendanceState::On(MonoTime now, const Leaving& event) {
  if (leaving_) return {};
  leaving_ = event.why;
  leave_by_ = now + kLeaveTimeout;
  if (!open_) return Dial(now);
  AttendanceEffects effects = {.close = true};
  // The last steps, which no heartbeat has told yet.
  if (welcomed_) effects.send.push_back(NewHeartbeat());
  effects.send.push_back(Leave{MemberOf(), *leaving_});
  return effects;
}

AttendanceEffects AttendanceState::On(MonoTime now, const TimePassed&) {
  if (now < wake_at()) return {};
  if (leaving_ && now >= leave_by_) return FinishLeaving();
  if (!open_) return Dial(now);
  if (!welcomed_) {
    return Break(now, absl::UnavailableError(absl::StrCat(
                          "no answer to this worker's Hello within ",
                          absl::FormatDuration(kWelcomeTimeout))));
  }
  heartbeat_at_ = now + heartbeat_interval_;
  return SendIfDialled(NewHeartbeat());
}

Heartbeat AttendanceState::NewHeartbeat() const {
  return {MemberOf(), progress_.step, progress_.phase, progress_.metrics, progress_.sync};
}

AttendanceEffects AttendanceState::Hear(MonoTime now, const Welcome& welcome) {
  if (welcome.generation < generation_) {
    return Break(now, absl::UnavailableError(absl::StrCat(
                          "a coordinator of generation ", welcome.generation.value(),
                          " answered, older than ", generation_.value(),
                          "; a newer one must have taken over")));
  }
  if (!welcome.generation.valid()) {
    return Fail(absl::InvalidArgumentError("the coordinator's Welcome has no generation"));
  }
  if (welcome.heartbeat_interval < absl::Milliseconds(1)) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(
        "the coordinator asks for a heartbeat every ",
        absl::FormatDuration(welcome.heartbeat_interval), "; expected at least 1ms")));
  }
  generation_ = welcome.generation;
  welcomed_ = true;
  failures_ = 0;
  heartbeat_interval_ = welcome.heartbeat_interval;
  // At once: after a reconnect the coordinator learns the step without delay.
  heartbeat_at_ = now;
  return {};
}

AttendanceEffects AttendanceState::Hear(MonoTime now, const Waiting& waiting) {
  waiting_for_ = waiting.detail;
  return {};
}

AttendanceEffects AttendanceState::Hear(MonoTime now, const Proposal& proposal) {
  if (proposal_ && proposal.epoch <= proposal_->epoch) return {};
  waiting_for_.clear();
  if (std::find(proposal.members.begin(), proposal.members.end(), hello_.worker) ==
      proposal.members.end()) {
    return Fail(absl::FailedPreconditionError(
        absl::StrCat("the coordinator proposed epoch ", proposal.epoch.value(), " to worker '",
                     hello_.worker, "', which is not one of its members")));
  }
  if (!log_.empty() && log_.front().number > proposal.log_number.next()) {
    return Fail(absl::DataLossError(absl::StrCat(
        "control entries ", proposal.log_number.next().value(), " to ",
        log_.front().number.value() - 1, " are missing: epoch ", proposal.epoch.value(),
        " begins before them and the coordinator did not send them")));
  }
  EndEpoch(EpochIsOver(LastingEpoch(),
                       absl::StrCat("epoch ", proposal.epoch.value(), " was proposed")));
  proposal_ = proposal;
  proposal_end_ = absl::OkStatus();
  my_endpoint_.reset();
  endpoint_.reset();
  ready_.reset();
  started_ = false;
  applied_.clear();
  stopped_.reset();
  while (!log_.empty() && log_.front().number <= proposal.log_number) log_.pop_front();
  newest_ = std::max(newest_.value_or(LogNumber()), proposal.log_number);
  return {};
}

AttendanceEffects AttendanceState::Hear(MonoTime now, const Endpoint& endpoint) {
  if (endpoint.epoch == LastingEpoch()) endpoint_ = endpoint.bytes;
  return {};
}

AttendanceEffects AttendanceState::Hear(MonoTime now, const Start& start) {
  if (start.epoch == LastingEpoch()) started_ = true;
  return {};
}

AttendanceEffects AttendanceState::Hear(MonoTime now, const NewEntries& message) {
  std::optional<LogNumber> newest = newest_;
  for (const ControlEntry& entry : message.entries) {
    if (newest && entry.number <= *newest) continue;
    if (newest && entry.number != newest->next()) {
      return Fail(absl::DataLossError(absl::StrCat(
          "control entry ", entry.number.value(), " came after entry ", newest->value(),
          "; expected entry ", newest->next().value(),
          ": this worker cannot stay in step; start it again")));
    }
    newest = entry.number;
  }
  for (const ControlEntry& entry : message.entries) {
    if (newest_ && entry.number <= *newest_) continue;
    log_.push_back(entry);
    newest_ = entry.number;
  }
  const LogNumber applied = applied_.empty() ? LogNumber() : applied_.back().number;
  while (log_.size() > kMaxLogEntries && log_.front().number <= applied) log_.pop_front();
  if (log_.size() > kMaxLogEntries) {
    return Fail(absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxLogEntries,
                     " control entries wait to be applied on this worker; is it training?")));
  }
  return {};
}

AttendanceEffects AttendanceState::Hear(MonoTime now, const AbortEpoch& abort) {
  if (absl::IsCancelled(abort.why)) return Fail(abort.why);
  if (abort.epoch == LastingEpoch() && abort.epoch.valid()) {
    EndEpoch(EpochIsOver(abort.epoch, abort.why.message()));
  }
  if (stopped_ && abort.epoch == stopped_->epoch) stopped_.reset();
  return {};
}

}  // namespace lockstep
