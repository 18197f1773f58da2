// The transport for CPU ranks on several hosts: LibTorch's ProcessGroupGloo.
//
// Gloo checks no layouts and kills the process on some mismatches, so it only ever
// carries messages whose size all ranks have agreed on. They go from rank to rank
// straight out of and into the arenas and tensors; sums are made here, in rank order,
// by the owner of each part: the bytes on the wire are as few as of any all-reduce, and
// results are bit-equal to the other transports'.
//
// A rank that meets with an error closes its connections, so that peers find out at
// once. Rank 0 serves the rendezvous; without it no epoch goes on.
//
// SIGPIPE is ignored from the first transport on, unless the process handles it:
// else a killed peer would take this process along.
#ifndef LOCKSTEP_WORKER_TRANSPORT_GLOO_GLOO_TRANSPORT_H_
#define LOCKSTEP_WORKER_TRANSPORT_GLOO_GLOO_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "worker/transport/transport.h"

namespace lockstep {

struct GlooOptions {
  // The network interface whose address peers connect to.
  std::string interface = "lo";
  // Of what moves as one message; equal on all ranks. Small ones overlap the network with
  // the work on what arrived; large ones cost fewer messages.
  std::int64_t bucket_bytes = 2 << 20;
};

inline constexpr std::int64_t kMinBucketBytes = 1 << 20;
inline constexpr std::int64_t kMaxBucketBytes = 32 << 20;
// Within those bounds, and of whole elements of any type.
inline bool IsBucketSize(std::int64_t bytes) {
  return bytes >= kMinBucketBytes && bytes <= kMaxBucketBytes && bytes % 16 == 0;
}

// Thread-safe.
class GlooFactory final : public TransportFactory {
 public:
  explicit GlooFactory(GlooOptions options) : options_(std::move(options)) {}

  std::string name() const override { return "gloo"; }
  // Also FailedPrecondition: there is no such interface; InvalidArgument: buckets are not
  // as IsBucketSize() says, or ranks disagree on them.
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override;

 private:
  const GlooOptions options_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_GLOO_GLOO_TRANSPORT_H_
