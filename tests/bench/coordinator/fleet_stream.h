// FleetStream: one simulated worker's Attend stream, as bytes: what waits is written one message
// after the other, what comes is handed on. Send() may be called from any thread.
#ifndef LOCKSTEP_TESTS_BENCH_COORDINATOR_FLEET_STREAM_H_
#define LOCKSTEP_TESTS_BENCH_COORDINATOR_FLEET_STREAM_H_

#include <deque>
#include <string>

#include "common/base/mutex.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/membership.pb.h"

namespace lockstep {

// Called by gRPC's threads, for one stream by one at a time.
class FleetStreamSink {
 public:
  virtual ~FleetStreamSink() = default;
  virtual void OnBytes(int worker, const std::string& bytes) = 0;
  // The last call.
  virtual void OnEnd(int worker, const grpc::Status& status) = 0;
};

class FleetStream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `sink` outlives it; once open, it must not be destroyed before OnEnd().
  FleetStream(int worker, FleetStreamSink* sink) : worker_(worker), sink_(sink) {}

  // Once, before all else.
  void Open(grpc::GenericStub& stub, const v1::AttendRequest& hello);
  // Nothing happens once the stream has ended.
  void Send(const v1::AttendRequest& request);
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override { sink_->OnEnd(worker_, status); }

 private:
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int worker_;
  FleetStreamSink* const sink_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;  // of the read under way

  Mutex mu_;
  std::deque<grpc::ByteBuffer> waiting_ ABSL_GUARDED_BY(mu_);
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);  // of the write under way
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_COORDINATOR_FLEET_STREAM_H_
