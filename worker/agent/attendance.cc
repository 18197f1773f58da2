#include "worker/agent/attendance.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/text.h"

namespace lockstep {

// Numbers the events of one stream, so that late ones can be told apart.
class Attendance::Sink final : public MessageSink {
 public:
  Sink(Attendance* attendance, std::int64_t stream) : attendance_(attendance), stream_(stream) {}

  void OnMessage(CoordinatorMessage message) override {
    attendance_->Step(Received{stream_, std::move(message)});
  }
  void OnEnd(const absl::Status& status) override {
    attendance_->Step(StreamEnded{stream_, status});
  }
  std::int64_t stream() const { return stream_; }

 private:
  Attendance* const attendance_;
  const std::int64_t stream_;
};

Attendance::Attendance(const Hello& hello, std::unique_ptr<StreamDialer> dialer,
                       std::unique_ptr<PolicyWriter> policies)
    : job_(hello.job),
      policies_(std::move(policies)),
      state_(hello),
      dialer_(std::move(dialer)) {
  Step(Attend{});
  thread_ = std::thread([this] { Run(); });
}

Attendance::~Attendance() { Stop(); }

absl::Status Attendance::AwaitWelcome(absl::Duration timeout) {
  MutexLock lock(&mu_);
  changed_.AwaitFor(&mu_, timeout, [this] { return state_.over() || state_.has_attended(); });
  if (state_.has_attended()) return absl::OkStatus();
  if (state_.over()) return state_.end();
  return absl::UnavailableError(
      state_.last_break().ok()
          ? absl::StrCat("no answer within ", absl::FormatDuration(timeout))
          : std::string(state_.last_break().message()));
}

absl::StatusOr<Proposal> Attendance::AwaitProposal(absl::Duration timeout) {
  const MonoTime deadline = clock_.Now() + timeout;
  std::string told;
  MutexLock lock(&mu_);
  while (true) {
    std::optional<Proposal> proposal;
    const bool is_news = changed_.AwaitFor(&mu_, deadline - clock_.Now(), [&] {
      return state_.over() || (proposal = state_.TakeProposal()).has_value() ||
             state_.waiting_for() != told;
    });
    if (proposal) return *std::move(proposal);
    if (state_.over()) return state_.end();
    if (!is_news) break;
    told = state_.waiting_for();
    if (!told.empty()) LogInfo("job '", job_, "': ", told);
  }
  const std::string waited = absl::StrCat("waited ", absl::FormatDuration(timeout),
                                          " for an epoch of job '", job_, "'");
  if (!state_.attending()) {
    return absl::UnavailableError(absl::StrCat(waited, BreakTextLocked()));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      waited, ": ",
      told.empty() ? "this worker attends, but the coordinator proposed none, as it does once "
                     "enough workers attend"
                   : told,
      state_.taken_end().ok() ? std::string()
                              : absl::StrCat("; before, ", state_.taken_end().message())));
}

absl::StatusOr<std::string> Attendance::ExchangeEndpoint(Epoch epoch,
                                                         const std::optional<std::string>& mine,
                                                         absl::Duration timeout) {
  if (mine && mine->size() > std::size_t{kMaxEndpointBytes}) {
    return absl::InvalidArgumentError(absl::StrCat("an endpoint of ", mine->size(),
                                                   " bytes; at most ", kMaxEndpointBytes,
                                                   " are allowed"));
  }
  MutexLock lock(&mu_);
  if (mine) StepLocked(EndpointOffered{epoch, *mine});
  const auto decided = [&] {
    return !state_.EpochStatus(epoch).ok() || state_.endpoint().has_value();
  };
  if (!changed_.AwaitFor(&mu_, timeout, decided)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "waited ", absl::FormatDuration(timeout), " for the endpoint of rank 0 in epoch ",
        epoch.value(), BreakTextLocked()));
  }
  const absl::Status status = state_.EpochStatus(epoch);
  if (!status.ok()) return status;
  return *state_.endpoint();
}

absl::Status Attendance::AwaitStart(const Ready& ready, absl::Duration timeout) {
  MutexLock lock(&mu_);
  StepLocked(BecameReady{ready});
  const auto decided = [&] { return !state_.EpochStatus(ready.epoch).ok() || state_.started(); };
  if (!changed_.AwaitFor(&mu_, timeout, decided)) {
    std::string members = "its members";
    if (state_.taken()) absl::StrAppend(&members, " (", ListNames(state_.taken()->members), ")");
    return absl::DeadlineExceededError(absl::StrCat(
        "waited ", absl::FormatDuration(timeout), " for the start of epoch ",
        ready.epoch.value(), ", which comes once all of ", members, " are ready",
        BreakTextLocked()));
  }
  return state_.EpochStatus(ready.epoch);
}

std::vector<ControlEntry> Attendance::EntriesAfter(LogNumber after) {
  MutexLock lock(&mu_);
  return state_.EntriesAfter(after);
}

void Attendance::ReportProgress(std::int64_t step, Phase phase,
                                const std::map<std::string, double>& metrics,
                                const SyncCounters& sync) {
  Step(ProgressMade{step, phase, metrics, sync});
}

absl::StatusOr<Revision> Attendance::RevisePolicy(const SyncPolicy& policy,
                                                  const std::string& reason,
                                                  absl::Duration timeout) {
  {
    MutexLock lock(&mu_);
    if (state_.over()) return state_.end();
  }
  // Not under the lock: it waits, and the link's thread goes on meanwhile.
  return policies_->Revise(policy, reason, timeout);
}

void Attendance::ReportApplied(LogNumber number, std::int64_t step) {
  Step(EntryTookEffect{number, step});
}

void Attendance::ReportStopped(Epoch epoch, std::int64_t step, const absl::Status& why) {
  Step(EpochStopping{epoch, step, why});
}

void Attendance::OnAbort(std::function<void(const absl::Status&)> callback) {
  MutexLock lock(&mu_);
  callback_ = std::move(callback);
  called_back_for_ = Epoch();
  changed_.SignalAll();
  // From within the callback there is nothing to wait for.
  if (std::this_thread::get_id() == thread_.get_id()) return;
  changed_.AwaitFor(&mu_, absl::InfiniteDuration(), [this] { return !calling_back_; });
}

void Attendance::Leave(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    if (stop_) return;
    callback_ = nullptr;
    StepLocked(Leaving{why});
    // The state gives up after kLeaveTimeout by itself.
    changed_.AwaitFor(&mu_, 2 * kLeaveTimeout, [this] { return state_.over(); });
  }
  Stop();
}

void Attendance::Stop() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  changed_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

void Attendance::Step(const AttendanceEvent& event) {
  MutexLock lock(&mu_);
  StepLocked(event);
}

void Attendance::StepLocked(const AttendanceEvent& event) {
  // Also without effects: the link's thread looks at wake_at() again.
  pending_.push_back(state_.Step(clock_.Now(), event));
  changed_.SignalAll();
}

bool Attendance::CallBackIsDueLocked() const {
  return callback_ && state_.taken_was_aborted() && called_back_for_ != state_.taken()->epoch;
}

std::string Attendance::BreakTextLocked() const {
  if (state_.attending()) return "";
  if (state_.last_break().ok()) return ", but the coordinator has not answered";
  return absl::StrCat(", but the coordinator cannot be reached: ",
                      state_.last_break().message());
}

void Attendance::Run() {
  while (true) {
    std::vector<AttendanceEffects> todo;
    bool attending;
    absl::Status last_break;
    absl::Status end;
    {
      MutexLock lock(&mu_);
      const bool woken = changed_.AwaitFor(
          &mu_, state_.wake_at() - clock_.Now(),
          [this] { return stop_ || !pending_.empty() || CallBackIsDueLocked(); });
      if (!woken) StepLocked(TimePassed{});
      if (stop_) break;
      todo = std::exchange(pending_, {});
      attending = state_.attending();
      last_break = state_.last_break();
      end = state_.end();
    }
    for (AttendanceEffects& effects : todo) CarryOut(std::move(effects));
    LogChanges(attending, last_break, end);
    CallBackIfDue();
  }
  stream_.reset();
  sink_.reset();
}

void Attendance::CarryOut(AttendanceEffects effects) {
  if (effects.drop || effects.dial != 0) {
    stream_.reset();
    sink_.reset();
  }
  if (effects.dial != 0) {
    sink_ = std::make_unique<Sink>(this, effects.dial);
    stream_ = dialer_->Dial(sink_.get());
  }
  // Effects of a time before the stream was dropped.
  if (stream_ == nullptr) return;
  for (WorkerMessage& message : effects.send) {
    const absl::Status status = stream_->Send(std::move(message));
    if (!status.ok()) {
      Step(StreamEnded{sink_->stream(), status});
      return;
    }
  }
  if (effects.close) stream_->Close();
}

void Attendance::LogChanges(bool attending, const absl::Status& last_break,
                            const absl::Status& end) {
  if (!end.ok() && !was_over_) {
    was_over_ = true;
    LogInfo("no longer attending job '", job_, "': ", end.message());
  } else if (attending && !was_attending_) {
    LogInfo("attending job '", job_, "'");
  } else if (!attending && was_attending_) {
    LogWarning("lost the coordinator (", last_break.message(),
               "); what is agreed goes on, dialling again");
  }
  was_attending_ = attending;
}

void Attendance::CallBackIfDue() {
  std::function<void(const absl::Status&)> callback;
  absl::Status why;
  {
    MutexLock lock(&mu_);
    if (!CallBackIsDueLocked()) return;
    callback = callback_;
    why = state_.taken_end();
    called_back_for_ = state_.taken()->epoch;
    calling_back_ = true;
  }
  callback(why);
  callback = nullptr;  // what it holds goes before OnAbort() returns
  MutexLock lock(&mu_);
  calling_back_ = false;
  changed_.SignalAll();
}

}  // namespace lockstep
