#include "coordinator/rpc/watch_stream.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "coordinator/rpc/read_job.h"
#include "coordinator/rpc/view_convert.h"
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
    if (writing_) {
      is_stale_ = true;
      return;
    }
    is_stale_ = false;
    response_ = ViewOfAll(*job);
    writing_ = true;
    reactor_->StartWrite(&response_);
  }

  // Whether the state must be looked at again.
  bool OnWriteDone() {
    MutexLock lock(&mu_);
    writing_ = false;
    FinishIfDueLocked();
    return is_stale_ && !end_.has_value();
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
  bool is_stale_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

class WatchReactor final : public Reactor {
 public:
  WatchReactor(Coordinator* coordinator, const std::string& job)
      : coordinator_(coordinator), job_(job), writer_(std::make_shared<WatchWriter>(this, job)) {
    const absl::Status name = CheckJobName(job_);
    if (!name.ok()) {
      writer_->End(name);
      return;
    }
    watch_ = coordinator_->Watch(
        job_, [writer = writer_](const JobState* state) { writer->OnState(state); },
        [writer = writer_](const absl::Status& why) { writer->End(why); });
  }

  void OnWriteDone(bool ok) override {
    const bool again = writer_->OnWriteDone();
    if (!ok) {
      writer_->End(absl::UnavailableError("the watcher's stream is broken"));
    } else if (again) {
      Look();
    }
  }

  void OnCancel() override { writer_->End(absl::CancelledError("the watcher cancelled")); }

  void OnDone() override {
    if (watch_.valid()) coordinator_->CloseWatch(watch_);
    writer_->Detach();
    delete this;
  }

 private:
  void Look() {
    coordinator_->Read([coordinator = coordinator_, job = job_,
                        writer = writer_](const ClusterState* state) {
      if (state == nullptr) {
        writer->End(NoState(*coordinator));
        return;
      }
      const auto found = state->jobs.find(job);
      writer->OnState(found == state->jobs.end() ? nullptr : &found->second);
    });
  }

  Coordinator* const coordinator_;
  const std::string job_;
  const std::shared_ptr<WatchWriter> writer_;
  Coordinator::WatchId watch_;
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchJobResponse>* NewWatchStream(Coordinator* coordinator,
                                                               const std::string& job) {
  return new WatchReactor(coordinator, job);
}

}  // namespace lockstep
