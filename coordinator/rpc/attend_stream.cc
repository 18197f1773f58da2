#include "coordinator/rpc/attend_stream.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "lockstep/v1/membership.pb.h"
#include "proto/convert/convert.h"
#include "proto/convert/status_convert.h"

namespace lockstep {
namespace {

using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// The writing half. Thread-safe. gRPC runs no reaction inside StartWrite(), Finish() or
// TryCancel(), so they may be called under the lock.
class AttendWriter final : public AttendSink, public std::enable_shared_from_this<AttendWriter> {
 public:
  // `context`: the call's; as long as the reactor.
  AttendWriter(Coordinator* coordinator, WireForm* wire, Reactor* reactor,
               grpc::CallbackServerContext* context, const AttendLimits& limits)
      : coordinator_(coordinator),
        wire_(wire),
        limits_(limits),
        reactor_(reactor),
        context_(context) {}

  // Before the first message is read, hence before the first Send().
  void SetStream(StreamId stream) {
    MutexLock lock(&mu_);
    stream_ = stream;
  }

  void Send(const SharedMessage& message) override {
    grpc::ByteBuffer response = wire_->Of(message);
    const std::size_t bytes = response.Length();
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
    // Declared first, so that it goes without the lock.
    std::unique_ptr<grpc::Alarm> cut_off;
    MutexLock lock(&mu_);
    reactor_ = nullptr;
    cut_off = std::move(cut_off_);
  }

 private:
  void EndLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!end_.has_value()) {
      end_ = why;
      CutOffLaterLocked();
    }
    PumpLocked();
  }

  // A write to a worker that does not read stays in flight for ever, and holds up the end.
  void CutOffLaterLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (reactor_ == nullptr) return;
    cut_off_ = std::make_unique<grpc::Alarm>();
    cut_off_->Set(absl::ToChronoTime(absl::Now() + limits_.end_timeout),
                  [writer = shared_from_this()](bool is_due) {
                    if (is_due) writer->CutOff();
                  });
  }
  void CutOff() {
    MutexLock lock(&mu_);
    if (reactor_ != nullptr) context_->TryCancel();
  }

  void PumpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (reactor_ == nullptr || writing_ || finished_) return;
    if (!waiting_.empty()) {
      in_flight_ = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= std::min(waiting_bytes_, in_flight_.Length());
      writing_ = true;
      reactor_->StartWrite(&in_flight_);
    } else if (end_.has_value()) {
      finished_ = true;
      reactor_->Finish(ToGrpcStatus(*end_));
    }
  }

  Coordinator* const coordinator_;
  WireForm* const wire_;
  const AttendLimits limits_;
  Mutex mu_;
  StreamId stream_ ABSL_GUARDED_BY(mu_);
  Reactor* reactor_ ABSL_GUARDED_BY(mu_);
  grpc::CallbackServerContext* const context_;
  std::unique_ptr<grpc::Alarm> cut_off_ ABSL_GUARDED_BY(mu_);
  std::deque<grpc::ByteBuffer> waiting_ ABSL_GUARDED_BY(mu_);
  std::size_t waiting_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  grpc::ByteBuffer in_flight_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

class AttendReactor final : public Reactor {
 public:
  AttendReactor(Coordinator* coordinator, Gate* gate, WireForm* wire,
                grpc::CallbackServerContext* context, const AttendLimits& limits)
      : coordinator_(coordinator),
        gate_(gate),
        identity_(gate->Identify(*context)),
        limits_(limits),
        rate_(limits.messages, gate->Now()),
        writer_(std::make_shared<AttendWriter>(coordinator, wire, this, context, limits)) {
    const absl::Status admitted = gate_->BeginStream(StreamKind::kAttend, identity_.who);
    if (!admitted.ok()) {
      writer_->End(admitted);
      return;
    }
    is_counted_ = true;
    absl::StatusOr<StreamId> stream = coordinator_->OpenStream(writer_);
    if (!stream.ok()) {
      writer_->End(stream.status());
      return;
    }
    stream_ = *stream;
    writer_->SetStream(stream_);
    AwaitHello();
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
    if (is_counted_) gate_->EndStream(StreamKind::kAttend, identity_.who);
    delete this;
  }

 private:
  absl::StatusOr<WorkerMessage> Decode() {
    if (!rate_.Admit(limits_.messages, gate_->Now())) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the worker sends more than ", limits_.messages.per_second, " messages a second and ",
          limits_.messages.burst, " at once, the limit"));
    }
    v1::AttendRequest request;
    grpc::ProtoBufferReader reader(&request_);
    if (!request.ParseFromZeroCopyStream(&reader)) {
      return absl::InvalidArgumentError("the worker sent bytes that are no AttendRequest");
    }
    absl::StatusOr<WorkerMessage> message = FromProto(request);
    if (!message.ok()) return message;
    const auto* hello = std::get_if<Hello>(&*message);
    if ((hello != nullptr) == greeted_) {
      return absl::InvalidArgumentError(
          greeted_ ? "a second Hello came on the stream; open a new one"
                   : "the first message of a stream must be Hello");
    }
    if (hello != nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(gate_->AdmitHello(identity_.caller, hello->job, hello->worker));
      greeted_ = true;
      hello_alarm_.Cancel();
    }
    return message;
  }

  // The alarm may ring after this reactor is deleted, and then finds the writer detached.
  void AwaitHello() {
    hello_alarm_.Set(absl::ToChronoTime(absl::Now() + limits_.hello_timeout),
                     [coordinator = coordinator_, stream = stream_, writer = writer_,
                      timeout = limits_.hello_timeout](bool is_due) {
                       if (!is_due) return;
                       coordinator->PostStreamBroke(stream);
                       writer->End(absl::DeadlineExceededError(
                           absl::StrCat("no Hello came within ", absl::FormatDuration(timeout))));
                     });
  }

  // The coordinator hears of it at once: the status may wait for a write.
  void Break(const absl::Status& why) {
    if (stream_.valid()) coordinator_->PostStreamBroke(stream_);
    writer_->End(why);
  }

  Coordinator* const coordinator_;
  Gate* const gate_;
  const Gate::Identity identity_;
  const AttendLimits limits_;
  RateBucket rate_;
  const std::shared_ptr<AttendWriter> writer_;
  StreamId stream_;
  grpc::ByteBuffer request_;
  bool is_counted_ = false;
  bool greeted_ = false;
  grpc::Alarm hello_alarm_;
};

}  // namespace

grpc::ByteBuffer WireForm::Of(const SharedMessage& message) {
  MutexLock lock(&mu_);
  if (message != last_) {
    const grpc::Slice slice(ToProto(*message).SerializeAsString());
    bytes_ = grpc::ByteBuffer(&slice, 1);
    last_ = message;
  }
  return bytes_;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NewAttendStream(
    Coordinator* coordinator, Gate* gate, WireForm* wire, grpc::CallbackServerContext* context,
    const AttendLimits& limits) {
  return new AttendReactor(coordinator, gate, wire, context, limits);
}

}  // namespace lockstep
