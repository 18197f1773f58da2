// TensorView: a named, contiguous piece of memory with a type and a shape.
//
// It owns nothing. Code that has strided tensors stages them (worker/torch).
#ifndef LOCKSTEP_WORKER_TRANSPORT_TENSOR_VIEW_H_
#define LOCKSTEP_WORKER_TRANSPORT_TENSOR_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/manifest/manifest.h"

namespace lockstep {

struct TensorView {
  TensorSpec spec;
  std::byte* data = nullptr;  // spec.bytes() bytes; may be null if that is 0

  std::int64_t bytes() const { return spec.bytes(); }
};

// Digest of names, dtypes, shapes and order: equal on all ranks, or the views
// must not be moved.
std::uint64_t LayoutDigest(std::span<const TensorView> views);

// The layout as bytes that a peer can read, for an error that names both views.
std::string EncodeLayout(std::span<const TensorView> views);

// The first disagreement among the encoded layouts of all ranks, as one line
// naming the tensor and each rank's view of it: "buffer 'bn.running_mean':
// float32[64] on w0 (rank 0), absent on w1 (rank 1)". `members` by rank.
std::string DescribeDisagreement(const std::vector<std::string>& layouts,
                                 const std::vector<std::string>& members);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_TENSOR_VIEW_H_
