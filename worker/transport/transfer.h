// Transfer: one coalesced movement of tensors, as all ranks must agree on it.
//
// Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_TRANSFER_H_
#define LOCKSTEP_WORKER_TRANSPORT_TRANSFER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/manifest/reduction.h"
#include "worker/transport/tensor_view.h"

namespace lockstep {

struct Transfer {
  std::optional<ReduceOp> reduce;  // nothing: a broadcast from `root`
  int root = 0;                    // of a broadcast
  // Of a mean: one for each rank, equal on all ranks; empty: all count alike.
  std::vector<double> weights;
  std::span<const TensorView> views;
  // LayoutDigest(views), where it was computed before; nothing: it is computed.
  std::optional<std::uint64_t> layout;

  std::int64_t bytes() const;  // of its views; stops at the largest number
};

// "broadcast from rank 2", "sum", "mean weighted by 32, 0, 31".
std::string MannerText(const Transfer& transfer);

// Of names, dtypes, shapes and order, and of how they move.
std::uint64_t TransferDigest(const Transfer& transfer);

// Whether this rank can carry them out at all. Errors, that name the tensor:
//   InvalidArgument: too many tensors; or one has no dtype, a negative dimension or
//     no data.
absl::Status CheckViews(std::span<const Transfer> transfers);

// Whether what the ranks have agreed on has a meaning. Errors:
//   InvalidArgument: a root that is no rank; a dtype that the operation does not
//     reduce; weights that are not one for each rank, finite, at least 0 and with a
//     finite sum above 0.
absl::Status CheckManner(std::span<const Transfer> transfers, int world_size);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_TRANSFER_H_
