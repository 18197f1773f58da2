// ShardOptimizer: state and update of the elements that one rank owns.
//
// It knows spans, not ranks: stepping the shards one by one gives bit for bit
// what one unsharded step gives. No torch, no transport. Thread-compatible.
#ifndef LOCKSTEP_WORKER_OPTIM_SHARD_OPTIMIZER_H_
#define LOCKSTEP_WORKER_OPTIM_SHARD_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/manifest/dtype.h"
#include "worker/optim/optimizer.h"

namespace lockstep {

inline constexpr int kNoGroup = -1;

// Elements [begin, end) of a shard have the settings of groups[group]; kNoGroup:
// the optimizer's own.
struct GroupRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int group = kNoGroup;

  bool operator==(const GroupRange&) const = default;
};

// What is kept for each element of a shard from `begin` on, one float each.
struct StateSlot {
  std::string name;  // as ElementStatesOf() says, or kMasters
  std::int64_t begin = 0;
  std::span<float> values;  // in the memory that parameters are of
};
inline constexpr absl::string_view kMasters = "master";

// That `ranges` cover a shard without gap or overlap, and are of a group below `groups`
// or none. Errors: InvalidArgument names the first that is not so.
absl::Status CheckRanges(const std::vector<GroupRange>& ranges, std::size_t groups);

class ShardOptimizer {
 public:
  virtual ~ShardOptimizer() = default;

  // `ranges`: the shard from its begin to its end; see worker/optim/parameter_groups.h.
  // The elements from `short_begin` on are parameters of short types: they have masters
  // in float. Errors: those of Validate() and CheckRanges(), or ResourceExhausted: there
  //   is no memory for the state.
  static absl::StatusOr<std::unique_ptr<ShardOptimizer>> Create(const OptimizerConfig& config,
                                                                std::vector<GroupRange> ranges,
                                                                std::int64_t short_begin);
  // `elements` >= 0 of float32, all with the optimizer's own settings.
  static absl::StatusOr<std::unique_ptr<ShardOptimizer>> Create(const OptimizerConfig& config,
                                                                std::int64_t elements);

  // Begins the next step: what Update() does is of it. The gradients used are those
  // that Update() is given times `grad_scale`.
  virtual void BeginStep(float grad_scale) = 0;
  // The step of elements [begin, begin + gradients.size()) of the shard, which
  // Update() is called with once in each step; `params`: of that many elements of
  // `dtype`, float32 before short_begin, and bfloat16 or float16 behind.
  virtual void Update(std::int64_t begin, std::span<const float> gradients, DType dtype,
                      std::byte* params) = 0;
  // What was wrong with an Update() since BeginStep(), where the device that carries it
  // out can fail; parameters may then be of two steps.
  virtual absl::Status EndStep() { return absl::OkStatus(); }
  // A whole step of a shard of float32. Errors: InvalidArgument: a size is not
  //   elements(), and nothing was written. Or as EndStep().
  absl::Status Step(std::span<const float> gradients, float grad_scale, std::span<float> params);

  // Of the steps from now on. Errors: InvalidArgument: as Validate() says of lr.
  virtual absl::Status SetLearningRate(double lr) = 0;
  virtual double learning_rate() const = 0;

  // All that it keeps, for those who move or store it: ElementStatesOf(), then the masters
  // if the shard has short types. They and step() may be written between steps.
  virtual std::vector<StateSlot> state() = 0;
  virtual std::int64_t step() const = 0;  // steps begun
  virtual void set_step(std::int64_t step) = 0;

  virtual std::int64_t elements() const = 0;
  virtual std::int64_t state_bytes() const = 0;  // masters included
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_SHARD_OPTIMIZER_H_
