#include "coordinator/rpc/watch_stream.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "coordinator/rpc/read_job.h"
#include "coordinator/rpc/view_convert.h"
#include "grpcpp/alarm.h"
#include "proto/convert/status_convert.h"

namespace lockstep {
namespace {

using Reactor = grpc::ServerWriteReactor<v1::WatchJobResponse>;

// What the coordinator's callbacks hold; may outlive the reactor. Thread-safe.
// gRPC runs no reaction inside StartWrite() or Finish(), so both may be called
// under the lock.
class WatchWriter {
 public:
  WatchWriter(Reactor* reactor, std::string job) : job_(std::move(job)), reactor_(reactor) {}

  // On the coordinator's thread. Null: the job does not exist.
  void OnState(const JobState* job) {
    MutexLock lock(&mu_);
    if (reactor_ == nullptr || end_.has_value()) return;
    if (job == nullptr) {
      EndLocked(seen_ ? absl::OkStatus() : NoSuchJob(job_));
      return;
    }
    seen_ = true;
    if (writing_ || pausing_) {
      is_stale_ = true;
      return;
    }
    is_stale_ = false;
    response_ = ViewOfAll(*job);
    writing_ = true;
    reactor_->StartWrite(&response_);
  }

  // Nothing is written before OnPauseOver(), but the end.
  void OnWriteDone() {
    MutexLock lock(&mu_);
    writing_ = false;
    pausing_ = true;
    FinishIfDueLocked();
  }

  // Whether the state must be looked at again.
  bool OnPauseOver() {
    MutexLock lock(&mu_);
    pausing_ = false;
    return is_stale_ && reactor_ != nullptr && !end_.has_value();
  }

  void End(const absl::Status& why) {
    MutexLock lock(&mu_);
    EndLocked(why);
  }

  void Detach() {
    MutexLock lock(&mu_);
    reactor_ = nullptr;
  }

 private:
  void EndLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!end_.has_value()) end_ = why;
    FinishIfDueLocked();
  }

  void FinishIfDueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (reactor_ == nullptr || writing_ || finished_ || !end_.has_value()) return;
    finished_ = true;
    reactor_->Finish(ToGrpcStatus(*end_));
  }

  const std::string job_;
  Mutex mu_;
  Reactor* reactor_ ABSL_GUARDED_BY(mu_);
  v1::WatchJobResponse response_ ABSL_GUARDED_BY(mu_);
  bool seen_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool pausing_ ABSL_GUARDED_BY(mu_) = false;
  bool is_stale_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

void Look(Coordinator* coordinator, const std::string& job,
          const std::shared_ptr<WatchWriter>& writer) {
  coordinator->Read([=](const ClusterState* state) {
    if (state == nullptr) {
      writer->End(NoState(*coordinator));
      return;
    }
    const auto found = state->jobs.find(job);
    writer->OnState(found == state->jobs.end() ? nullptr : &found->second);
  });
}

class WatchReactor final : public Reactor {
 public:
  WatchReactor(Coordinator* coordinator, Gate* gate, const grpc::ServerContextBase& context,
               const v1::WatchJobRequest& request)
      : coordinator_(coordinator),
        gate_(gate),
        who_(gate->Identify(context).who),
        job_(request.job()),
        writer_(std::make_shared<WatchWriter>(this, job_)) {
    const absl::Status admitted = Admit(context, request);
    if (!admitted.ok()) {
      writer_->End(admitted);
      return;
    }
    watch_ = coordinator_->Watch(
        job_, [writer = writer_](const JobState* state) { writer->OnState(state); },
        [writer = writer_](const absl::Status& why) { writer->End(why); });
  }

  void OnWriteDone(bool ok) override {
    writer_->OnWriteDone();
    if (!ok) {
      writer_->End(absl::UnavailableError("the watcher's stream is broken"));
      return;
    }
    // It may ring after this reactor is deleted, and then finds the writer detached.
    // A new one for each pause, since the one before may still be in its callback.
    pause_ = std::make_unique<grpc::Alarm>();
    pause_->Set(absl::ToChronoTime(absl::Now() + kWatchPause),
                [coordinator = coordinator_, job = job_, writer = writer_](bool is_due) {
                  if (is_due && writer->OnPauseOver()) Look(coordinator, job, writer);
                });
  }

  void OnCancel() override { writer_->End(absl::CancelledError("the watcher cancelled")); }

  void OnDone() override {
    if (watch_.valid()) coordinator_->CloseWatch(watch_);
    if (is_counted_) gate_->EndStream(StreamKind::kWatch, who_);
    writer_->Detach();
    delete this;
  }

 private:
  absl::Status Admit(const grpc::ServerContextBase& context, const v1::WatchJobRequest& request) {
    LOCKSTEP_RETURN_IF_ERROR(gate_->Admit(context, request, job_));
    LOCKSTEP_RETURN_IF_ERROR(CheckJobName(job_));
    LOCKSTEP_RETURN_IF_ERROR(gate_->BeginStream(StreamKind::kWatch, who_));
    is_counted_ = true;
    return absl::OkStatus();
  }

  Coordinator* const coordinator_;
  Gate* const gate_;
  const std::string who_;
  const std::string job_;
  const std::shared_ptr<WatchWriter> writer_;
  Coordinator::WatchId watch_;
  bool is_counted_ = false;
  std::unique_ptr<grpc::Alarm> pause_;
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchJobResponse>* NewWatchStream(
    Coordinator* coordinator, Gate* gate, const grpc::ServerContextBase& context,
    const v1::WatchJobRequest& request) {
  return new WatchReactor(coordinator, gate, context, request);
}

}  // namespace lockstep
