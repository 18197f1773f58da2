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
  // In the memory that arenas are of (worker/device/device_math.h); else the host's.
  bool on_device = false;

  std::int64_t bytes() const { return spec.bytes(); }
};

// Digest of names, dtypes, shapes and order: equal on all ranks, or the views
// must not be moved.
std::uint64_t LayoutDigest(std::span<const TensorView> views);

// One line of a layout as people read it: "bn.running_mean", "float32[64]".
struct LayoutLine {
  std::string name;
  std::string view;
};

std::vector<LayoutLine> LayoutOf(std::span<const TensorView> views);

// A layout as bytes that a peer can read, for an error that names both views.
std::string EncodeLayout(std::span<const LayoutLine> lines);
std::string EncodeLayout(std::span<const TensorView> views);

// The first disagreement among the encoded layouts of all ranks, as one line
// naming the tensor and each rank's view of it: "tensor 'bn.running_mean':
// float32[64] on w0 (rank 0), absent on w1 (rank 1)". Empty if there is none.
// `members` by rank. Bytes that are no layout are named as such.
std::string DescribeDisagreement(const std::vector<std::string>& layouts,
                                 const std::vector<std::string>& members);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_TENSOR_VIEW_H_
