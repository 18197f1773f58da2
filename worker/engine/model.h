// Model: one rank's replica of a model, as the engine sees it.
//
// The engine knows names and memory, not torch; worker/torch implements this for
// torch::nn and TorchScript modules, tests implement it with vectors.
// Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_MODEL_H_
#define LOCKSTEP_WORKER_ENGINE_MODEL_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/manifest/manifest.h"
#include "common/sharding/shard_plan.h"
#include "worker/core/agreement.h"
#include "worker/transport/tensor_view.h"

namespace lockstep {

// Tensors found by name for one operation, or for several if it is renewed before
// each. Views are contiguous; where a tensor is not, its view is a staged copy that
// WriteBack() carries over. It must not outlive the model.
class TensorAccess {
 public:
  virtual ~TensorAccess() = default;
  // Whether finding them anew would give the same views: the same names lead to
  // the same tensors, which have not been converted, resized or moved. Then it is as
  // if it were found now; staged copies are made again. Else it is of no more use.
  virtual bool Renew() = 0;
  virtual std::span<const TensorView> views() const = 0;
  // After those of the views were written whose index is in `written`: makes the
  // tensors hold what they hold. Keeps dtype, device, strides and aliasing; leaves
  // the others alone.
  // Errors: InvalidArgument: a tensor cannot hold it (one element of it stands for
  //   several that now differ, or it shares memory with a tensor that was given other
  //   values; this is found after writing), named.
  virtual absl::Status WriteBack(std::span<const std::size_t> written) = 0;
};

enum class InitialValues {
  kCopyIn,  // the arena takes over this replica's values
  kDiscard, // another rank fills the arena, which this rank shares
};

// Where the parameters of one block of the plan lie, and their gradients.
struct BlockMemory {
  Block block;
  std::byte* parameters = nullptr;
  std::byte* gradients = nullptr;
};

// What a rank knows of its gradients before they are summed.
struct GradientBound {
  float largest = 0;  // magnitude
  // The plan's number of the first parameter with an Inf or NaN; or kAllFinite.
  std::int64_t not_finite = kAllFinite;
};

class Model {
 public:
  virtual ~Model() = default;

  // A buffer that holds no plain values now (meta, sparse, quantized, not
  // initialised) is listed with the dtype kUnspecified.
  // Errors: InvalidArgument: a parameter that cannot take part, named.
  virtual absl::StatusOr<Manifest> Describe() const = 0;

  // Makes every trainable parameter a view of the memory of its block, as `plan`
  // places it; `memory` of each of the plan's blocks, which outlives the use of the
  // model.
  virtual absl::Status Adopt(const ShardPlan& plan, std::span<const BlockMemory> memory,
                             InitialValues initial) = 0;

  // The memory holds the values that count. Until then those that Adopt() was to discard are kept.
  virtual void Settle() = 0;

  // Detaches the model from that memory: parameters become owned copies again, or what
  // they were before if it was not settled what was to take the place of that.
  virtual void Release() = 0;

  // Before a step: afterwards the memory holds every gradient, zeros where a parameter
  // has none, also where training code replaced it. Until ClearGradients() the memory
  // is the caller's, who may leave anything there.
  // Errors: FailedPrecondition: a parameter is no longer a view of its memory
  //   (moved, resized, converted), named.
  virtual absl::StatusOr<GradientBound> CollectGradients() = 0;

  // Right before backward: from now on until CollectGradients() or Release() calls
  // `in_place` with the plan's number of each parameter whose gradient backward has put
  // into the memory, from backward's thread. A gradient that was told of may then be
  // read, and overwritten, by others: CollectGradients() no longer looks at it, and fails
  // with FailedPrecondition if training code changed it. Gradients may be left out, as by
  // default all are.
  virtual void TellOfGradients(std::function<void(std::size_t placement)> in_place) {}

  // The gradients were used: parameters have none until the next backward.
  virtual void ClearGradients() = 0;

  // Buffers whose names `selects`, found now, in the model's order; a tensor that
  // has two names appears once. The others are not looked at.
  // Errors: InvalidArgument: one that holds no plain values, named.
  virtual absl::StatusOr<std::unique_ptr<TensorAccess>> Buffers(
      const std::function<bool(absl::string_view)>& selects) = 0;

  // Parameters outside of the arena.
  virtual absl::StatusOr<std::unique_ptr<TensorAccess>> FrozenParameters() = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_MODEL_H_
