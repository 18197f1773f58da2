// ManualLink: a CoordinatorLink that a test drives. There is no coordinator: the
// test says what is proposed, which entries are known and when the epoch ends.
//
// Links that share an EndpointBoard hand rank 0's bytes around. Thread-safe.
#ifndef LOCKSTEP_WORKER_ENGINE_MANUAL_LINK_H_
#define LOCKSTEP_WORKER_ENGINE_MANUAL_LINK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "worker/agent/coordinator_link.h"

namespace lockstep {

class EndpointBoard {
 public:
  absl::StatusOr<std::string> Exchange(Epoch epoch, const std::optional<std::string>& mine,
                                       absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (mine.has_value()) {
      bytes_[epoch] = *mine;
      changed_.SignalAll();
    }
    if (!changed_.AwaitFor(&mu_, timeout, [&] { return bytes_.contains(epoch); })) {
      return absl::DeadlineExceededError("rank 0 gave no endpoint");
    }
    return bytes_[epoch];
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::map<Epoch, std::string> bytes_ ABSL_GUARDED_BY(mu_);
};

class ManualLink final : public CoordinatorLink {
 public:
  explicit ManualLink(EndpointBoard* board) : board_(board) {}

  // What AwaitProposal() returns next; each once.
  void Propose(Proposal proposal) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    proposals_.push_back(std::move(proposal));
  }
  // What AwaitStart() returns next instead of OK; each once.
  void RefuseStart(absl::Status status) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    starts_.push_back(std::move(status));
  }
  // What ExchangeEndpoint() returns next; each once.
  void RefuseEndpoint(absl::Status status) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    endpoints_.push_back(std::move(status));
  }
  void Append(ControlEntry entry) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    entries_.push_back(std::move(entry));
  }
  // Of the entries behind `after`, how many have come in by now: asked in each
  // EntriesAfter(). Without it, all.
  void SetPace(std::function<std::int64_t()> pace) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    pace_ = std::move(pace);
  }
  void AbortEpoch(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_) {
    // Held during the callback, so that OnAbort(nullptr) waits for it.
    MutexLock lock(&mu_);
    if (!state_.stopped.empty() && state_.stopped.back().epoch == epoch_) return;
    aborted_ = why;
    if (callback_) callback_(why);
  }

  std::vector<Ready> ready() const ABSL_LOCKS_EXCLUDED(mu_) { return Read(&State::ready); }
  std::vector<Applied> applied() const ABSL_LOCKS_EXCLUDED(mu_) { return Read(&State::applied); }
  std::vector<Heartbeat> progress() const ABSL_LOCKS_EXCLUDED(mu_) {
    return Read(&State::progress);
  }
  std::vector<EpochStopped> stopped() const ABSL_LOCKS_EXCLUDED(mu_) {
    return Read(&State::stopped);
  }
  std::optional<absl::Status> left() const ABSL_LOCKS_EXCLUDED(mu_) { return Read(&State::left); }

  absl::StatusOr<Proposal> AwaitProposal(absl::Duration timeout) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (proposals_.empty()) {
      return absl::DeadlineExceededError("no epoch was proposed; the job waits for w9");
    }
    Proposal proposal = std::move(proposals_.front());
    proposals_.pop_front();
    epoch_ = proposal.epoch;
    aborted_ = absl::OkStatus();
    return proposal;
  }

  absl::StatusOr<std::string> ExchangeEndpoint(Epoch epoch, const std::optional<std::string>& mine,
                                               absl::Duration timeout) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      if (!endpoints_.empty()) return TakeFirst(endpoints_);
    }
    return board_->Exchange(epoch, mine, timeout);
  }

  absl::Status AwaitStart(const Ready& ready, absl::Duration timeout) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    state_.ready.push_back(ready);
    return starts_.empty() ? absl::OkStatus() : TakeFirst(starts_);
  }

  std::vector<ControlEntry> EntriesAfter(LogNumber after) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    std::int64_t room = pace_ ? pace_() : static_cast<std::int64_t>(entries_.size());
    std::vector<ControlEntry> known;
    for (const ControlEntry& entry : entries_) {
      if (entry.number > after && room-- > 0) known.push_back(entry);
    }
    return known;
  }

  void ReportProgress(std::int64_t step, Phase phase,
                      const std::map<std::string, double>& metrics,
                      const SyncCounters& sync) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    state_.progress.push_back({epoch_, step, phase, metrics, sync});
  }

  // Becomes the next entry here; a test hands it to the other links.
  absl::StatusOr<Revision> RevisePolicy(const SyncPolicy& policy, const std::string& reason,
                                        absl::Duration timeout) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const auto count = static_cast<std::int64_t>(entries_.size());
    const Revision revision(count + 2);
    ControlEntry& entry = entries_.emplace_back();
    entry.number = LogNumber(count + 1);
    entry.decision = PolicyRevised{revision, policy};
    return revision;
  }

  void ReportApplied(LogNumber number, std::int64_t step) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    state_.applied.push_back({epoch_, number, step});
  }

  void ReportStopped(Epoch epoch, std::int64_t step, const absl::Status& why) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    state_.stopped.push_back({epoch, step, why});
    if (epoch == epoch_) aborted_ = absl::OkStatus();
  }

  void OnAbort(std::function<void(const absl::Status&)> callback) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    callback_ = std::move(callback);
    if (callback_ && !aborted_.ok()) callback_(aborted_);
  }

  void Leave(const absl::Status& why) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    state_.left = why;
  }

 private:
  struct State {
    std::vector<Ready> ready;
    std::vector<Applied> applied;
    std::vector<Heartbeat> progress;
    std::vector<EpochStopped> stopped;
    std::optional<absl::Status> left;
  };

  template <typename T>
  T Read(T State::*field) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return state_.*field;
  }
  static absl::Status TakeFirst(std::deque<absl::Status>& statuses) {
    absl::Status first = std::move(statuses.front());
    statuses.pop_front();
    return first;
  }

  EndpointBoard* const board_;
  mutable Mutex mu_;
  std::deque<Proposal> proposals_ ABSL_GUARDED_BY(mu_);
  std::deque<absl::Status> starts_ ABSL_GUARDED_BY(mu_);
  std::deque<absl::Status> endpoints_ ABSL_GUARDED_BY(mu_);
  std::vector<ControlEntry> entries_ ABSL_GUARDED_BY(mu_);
  std::function<std::int64_t()> pace_ ABSL_GUARDED_BY(mu_);
  std::function<void(const absl::Status&)> callback_ ABSL_GUARDED_BY(mu_);
  Epoch epoch_ ABSL_GUARDED_BY(mu_);
  absl::Status aborted_ ABSL_GUARDED_BY(mu_);
  State state_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_MANUAL_LINK_H_
