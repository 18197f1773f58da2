#include "tests/bench/coordinator/fleet_stream.h"

#include <utility>
#include <vector>

namespace lockstep {
namespace {

grpc::ByteBuffer BytesOf(const v1::AttendRequest& request) {
  const grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

std::string StringOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  (void)buffer.Dump(&slices);
  std::string bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace

void FleetStream::Open(grpc::GenericStub& stub, const v1::AttendRequest& hello) {
  stub.PrepareBidiStreamingCall(&context_, "/lockstep.v1.MembershipService/Attend", {}, this);
  // Until reading has ended, so that Send() may start writes outside of reactions.
  AddHold();
  Send(hello);
  StartRead(&incoming_);
  StartCall();
}

void FleetStream::Send(const v1::AttendRequest& request) {
  grpc::ByteBuffer bytes = BytesOf(request);
  MutexLock lock(&mu_);
  if (ended_) return;
  waiting_.push_back(std::move(bytes));
  WriteLocked();
}

void FleetStream::OnReadDone(bool ok) {
  if (ok) {
    sink_->OnBytes(worker_, StringOf(incoming_));
    StartRead(&incoming_);
    return;
  }
  {
    MutexLock lock(&mu_);
    ended_ = true;
  }
  RemoveHold();
}

void FleetStream::OnWriteDone(bool ok) {
  MutexLock lock(&mu_);
  writing_ = false;
  // If not ok, reading ends too.
  if (ok && !ended_) WriteLocked();
}

void FleetStream::WriteLocked() {
  if (writing_ || waiting_.empty()) return;
  writing_ = true;
  outgoing_ = std::move(waiting_.front());
  waiting_.pop_front();
  StartWrite(&outgoing_);
}

}  // namespace lockstep
