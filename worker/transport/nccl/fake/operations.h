// One call of a collective, Send or Recv: which memory it touches, what all ranks have
// to agree on, and what it does once all have come.
//
// Pure, but for Perform(), which moves data.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_OPERATIONS_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_OPERATIONS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "worker/transport/nccl/nccl_api.h"

namespace lockstep::fake_nccl {

// Sender and receiver of a pair, -1 and -1 of collectives; then which one in their order.
using Place = std::tuple<int, int, int>;

struct Operation {
  enum class Kind { kBroadcast, kAllGather, kSend, kRecv };

  bool is_collective() const { return kind != Kind::kSend && kind != Kind::kRecv; }

  Kind kind = Kind::kBroadcast;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  int peer = 0;  // or root
  // Of the rank that calls.
  int rank = 0;
  int ranks = 1;
  int device = 0;
  Place place;
  bool done = false;
};

// What an operation touches on its own rank; in place counts once, as written.
struct Range {
  const std::byte* begin;
  std::size_t bytes;
  bool written;
};
std::vector<Range> Touches(const Operation& operation);

// Why NCCL cannot do it, or should not: an unknown type, a root that is no rank, buffers
// that overlap other than in place.
std::optional<std::string> WhyInvalid(const Operation& operation);

// Two of a group, where one writes what the other touches.
std::optional<std::string> WhyInConflict(const Operation& a, const Operation& b);

// "Broadcast of 12 float32 from rank 1": equal on all ranks that take part.
std::string Describe(const Operation& operation);

// `operations` has all that take part, by rank, Send before Recv.
void Perform(const std::vector<Operation*>& operations);

}  // namespace lockstep::fake_nccl

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_OPERATIONS_H_
