#include "coordinator/rpc/attend_stream.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "proto/convert/convert.h"
#include "proto/convert/status_convert.h"

namespace lockstep {
namespace {

using Reactor = grpc::ServerBidiReactor<v1::AttendRequest, v1::AttendResponse>;

// The writing half. Thread-safe. gRPC runs no reaction inside StartWrite() or
// Finish(), so both may be called under the lock.
class AttendWriter final : public AttendSink {
 public:
  AttendWriter(Coordinator* coordinator, Reactor* reactor, const AttendLimits& limits)
      : coordinator_(coordinator), limits_(limits), reactor_(reactor) {}

  // Before the first message is read, hence before the first Send().
  void SetStream(StreamId stream) {
    MutexLock lock(&mu_);
    stream_ = stream;
  }

  void Send(const CoordinatorMessage& message) override {
    v1::AttendResponse response = ToProto(message);
    const std::size_t bytes = response.ByteSizeLong();
    MutexLock lock(&mu_);
    if (reactor_ == nullptr || end_.has_value()) return;
    if (waiting_.size() >= limits_.max_waiting_messages ||
        (!waiting_.empty() && waiting_bytes_ + bytes > limits_.max_waiting_bytes)) {
      waiting_.clear();
      coordinator_->PostStreamBroke(stream_);
      EndLocked(absl::ResourceExhaustedError(absl::StrCat(
          "the worker reads too slowly: ", limits_.max_waiting_messages, " messages or ",
          limits_.max_waiting_bytes, " bytes wait for it, the limit; attend again")));
      return;
    }
    waiting_.push_back(std::move(response));
    waiting_bytes_ += bytes;
    PumpLocked();
  }

  void End(const absl::Status& why) override {
    MutexLock lock(&mu_);
    EndLocked(why);
  }

  // Nothing more can be written: ends without the waiting messages.
  void Break(const absl::Status& why) {
    MutexLock lock(&mu_);
    waiting_.clear();
    writing_ = false;
    EndLocked(why);
  }

  void OnWriteDone() {
    MutexLock lock(&mu_);
    writing_ = false;
    PumpLocked();
  }

  // The reactor is about to be deleted.
  void Detach() {
    MutexLock lock(&mu_);
    reactor_ = nullptr;
  }

 private:
  void EndLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!end_.has_value()) end_ = why;
    PumpLocked();
  }

  void PumpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (reactor_ == nullptr || writing_ || finished_) return;
    if (!waiting_.empty()) {
      in_flight_ = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= std::min(waiting_bytes_, in_flight_.ByteSizeLong());
      writing_ = true;
      reactor_->StartWrite(&in_flight_);
    } else if (end_.has_value()) {
      finished_ = true;
      reactor_->Finish(ToGrpcStatus(*end_));
    }
  }

  Coordinator* const coordinator_;
  const AttendLimits limits_;
  Mutex mu_;
  StreamId stream_ ABSL_GUARDED_BY(mu_);
  Reactor* reactor_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::AttendResponse> waiting_ ABSL_GUARDED_BY(mu_);
  std::size_t waiting_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  v1::AttendResponse in_flight_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

class AttendReactor final : public Reactor {
 public:
  AttendReactor(Coordinator* coordinator, const AttendLimits& limits)
      : coordinator_(coordinator),
        writer_(std::make_shared<AttendWriter>(coordinator, this, limits)) {
    absl::StatusOr<StreamId> stream = coordinator_->OpenStream(writer_);
    if (!stream.ok()) {
      writer_->End(stream.status());
      return;
    }
    stream_ = *stream;
    writer_->SetStream(stream_);
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Break(absl::CancelledError("the worker closed its stream"));
      return;
    }
    absl::StatusOr<WorkerMessage> message = Decode();
    if (!message.ok()) {
      Break(message.status());
      return;
    }
    coordinator_->PostMessage(stream_, *std::move(message));
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      writer_->OnWriteDone();
    } else {
      writer_->Break(absl::UnavailableError("the worker's stream is broken"));
    }
  }

  void OnCancel() override { Break(absl::CancelledError("the worker's stream was cancelled")); }

  void OnDone() override {
    writer_->Detach();
    if (stream_.valid()) coordinator_->PostStreamBroke(stream_);
    delete this;
  }

 private:
  absl::StatusOr<WorkerMessage> Decode() {
    absl::StatusOr<WorkerMessage> message = FromProto(request_);
    if (!message.ok()) return message;
    const bool is_hello = std::holds_alternative<Hello>(*message);
    if (is_hello == greeted_) {
      return absl::InvalidArgumentError(
          greeted_ ? "a second Hello came on the stream; open a new one"
                   : "the first message of a stream must be Hello");
    }
    greeted_ = true;
    return message;
  }

  // The coordinator hears of it at once: the status may wait for a write.
  void Break(const absl::Status& why) {
    if (stream_.valid()) coordinator_->PostStreamBroke(stream_);
    writer_->End(why);
  }

  Coordinator* const coordinator_;
  const std::shared_ptr<AttendWriter> writer_;
  StreamId stream_;
  v1::AttendRequest request_;
  bool greeted_ = false;
};

}  // namespace

grpc::ServerBidiReactor<v1::AttendRequest, v1::AttendResponse>* NewAttendStream(
    Coordinator* coordinator, const AttendLimits& limits) {
  return new AttendReactor(coordinator, limits);
}

}  // namespace lockstep
