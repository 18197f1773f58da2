// Passage: bytes that go from one rank to one other, as all ranks must agree on it.
//
// Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_PASSAGE_H_
#define LOCKSTEP_WORKER_TRANSPORT_PASSAGE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/transport/tensor_view.h"

namespace lockstep {

struct Passage {
  int from = 0;
  int to = 0;
  // On `from` what is passed on, on `to` where it goes; on other ranks its spec alone counts.
  TensorView view;
};

// Of who passes what to whom, in order: equal on all ranks.
std::uint64_t PassagesDigest(std::span<const Passage> passages);

// The same as people read it.
std::vector<LayoutLine> LinesOf(std::span<const Passage> passages);

// Whether rank `rank` can carry them out. Errors, that name the tensor:
//   InvalidArgument: a rank that there is not, or the same twice; or, where this rank
//     takes part, a tensor without dtype or data.
absl::Status CheckPassages(std::span<const Passage> passages, int rank, int world_size);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_PASSAGE_H_
