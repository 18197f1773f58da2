#include "worker/agent/grpc_stream.h"

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <deque>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "lockstep/v1/membership.grpc.pb.h"
#include "lockstep/v1/membership.pb.h"
#include "proto/convert/convert.h"
#include "proto/convert/status_convert.h"
#include "worker/agent/grpc_channel.h"

namespace lockstep {
namespace {

// Messages that wait to be written. A worker says a few in a second: this many
// means that the connection takes none.
constexpr std::size_t kMaxQueued = 4096;

// gRPC runs no reaction inside the calls that start reads and writes, so they may
// be made under the lock. The stream holds itself open (AddHold) until reading
// has ended, so that Send() may start writes from outside of reactions until then.
class GrpcStream final : public MessageStream,
                         public grpc::ClientBidiReactor<v1::AttendRequest, v1::AttendResponse> {
 public:
  GrpcStream(const CoordinatorAddress& coordinator, MessageSink* sink)
      : sink_(sink), stub_(v1::MembershipService::NewStub(OpenChannel(coordinator))) {
    stub_->async()->Attend(&context_, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  ~GrpcStream() override {
    context_.TryCancel();
    MutexLock lock(&mu_);
    // Without a deadline: gRPC ends a cancelled call without the other side.
    changed_.AwaitFor(&mu_, absl::InfiniteDuration(), [this] { return done_; });
  }

  absl::Status Send(WorkerMessage message) override {
    v1::AttendRequest request = ToProto(message);
    MutexLock lock(&mu_);
    if (ended_ || closing_) return absl::OkStatus();
    if (queue_.size() >= kMaxQueued) {
      return absl::UnavailableError(absl::StrCat("the coordinator does not read: ", kMaxQueued,
                                                 " messages wait to be sent"));
    }
    queue_.push_back(std::move(request));
    WriteLocked();
    return absl::OkStatus();
  }

  void Close() override {
    MutexLock lock(&mu_);
    closing_ = true;
    WriteLocked();
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      absl::StatusOr<CoordinatorMessage> message = FromProto(incoming_);
      if (message.ok()) {
        sink_->OnMessage(*std::move(message));
        StartRead(&incoming_);
        return;
      }
      malformed_ = absl::InvalidArgumentError(absl::StrCat(
          "the coordinator sent a message that this worker does not understand (",
          message.status().message(), "); are they of the same version?"));
      context_.TryCancel();
    }
    {
      MutexLock lock(&mu_);
      ended_ = true;
    }
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    writing_ = false;
    // If not ok, reading ends too and tells why.
    if (ok && !ended_) WriteLocked();
  }

  void OnDone(const grpc::Status& status) override {
    sink_->OnEnd(malformed_.ok() ? FromGrpcStatus(status) : malformed_);
    MutexLock lock(&mu_);
    done_ = true;
    changed_.SignalAll();
  }

 private:
  // Starts the next write if none is under way, or tells that none follows.
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || ended_) return;
    if (!queue_.empty()) {
      writing_ = true;
      outgoing_ = std::move(queue_.front());
      queue_.pop_front();
      StartWrite(&outgoing_);
    } else if (closing_ && !writes_done_) {
      writes_done_ = true;
      StartWritesDone();
    }
  }

  MessageSink* const sink_;
  const std::unique_ptr<v1::MembershipService::Stub> stub_;
  grpc::ClientContext context_;
  v1::AttendResponse incoming_;  // of the read under way
  absl::Status malformed_;       // set before reading ends

  Mutex mu_;
  CondVar changed_;  // done_
  std::deque<v1::AttendRequest> queue_ ABSL_GUARDED_BY(mu_);
  v1::AttendRequest outgoing_ ABSL_GUARDED_BY(mu_);  // of the write under way
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool writes_done_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // reading has ended: start nothing
  bool done_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

std::unique_ptr<MessageStream> GrpcDialer::Dial(MessageSink* sink) {
  return std::make_unique<GrpcStream>(coordinator_, sink);
}

}  // namespace lockstep
