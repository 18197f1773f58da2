// Optimizers on one shard: state and update of the elements one rank owns.
//
// It knows spans, not ranks: stepping the shards one by one gives bit for bit
// what one unsharded step gives. No torch, no transport. Thread-compatible.
#ifndef LOCKSTEP_WORKER_OPTIM_OPTIMIZER_H_
#define LOCKSTEP_WORKER_OPTIM_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

inline constexpr int kMaxParameterGroups = 256;

// Other settings for those parameters whose full names match `pattern`
// (common/policy/pattern.h). The first group that matches a parameter counts.
//
//   AdamW{.groups = {{.pattern = "**.bias", .weight_decay = 0},
//                    {.pattern = "**.bn*.weight", .weight_decay = 0}}}
struct ParameterGroup {
  std::string pattern;
  double lr_scale = 1;  // of the optimizer's lr, also of one that is set later
  std::optional<double> weight_decay = std::nullopt;  // nothing: the optimizer's
};

// Defaults and meaning are those of torch::optim.
struct Sgd {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  std::vector<ParameterGroup> groups = {};
};
struct Adam {  // Kingma & Ba 2015; weight decay is added to the gradient
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups = {};
};
struct AdamW {  // Loshchilov & Hutter 2019; decoupled weight decay
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  std::vector<ParameterGroup> groups = {};
};
struct Adagrad {  // Duchi et al. 2011; weight decay is added to the gradient
  double lr = 1e-2;
  double lr_decay = 0;  // step t, from 1, goes lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  std::vector<ParameterGroup> groups = {};
};
using OptimizerConfig = std::variant<Sgd, Adam, AdamW, Adagrad>;

// Errors: InvalidArgument names the setting, its value and what is allowed.
absl::Status Validate(const OptimizerConfig& config);

const std::vector<ParameterGroup>& GroupsOf(const OptimizerConfig& config);

// "AdamW(lr=0.001, beta1=0.9, ...)", every setting with all its digits: equal
// text means equal settings.
std::string Describe(const OptimizerConfig& config);

inline constexpr int kNoGroup = -1;

// Elements [begin, end) of a shard have the settings of groups[group]; kNoGroup:
// the optimizer's own.
struct GroupRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int group = kNoGroup;

  bool operator==(const GroupRange&) const = default;
};

// The state of one shard.
class ShardOptimizer {
 public:
  virtual ~ShardOptimizer() = default;

  // `ranges`: the shard from its begin to its end, without gap or overlap; see
  // worker/optim/parameter_groups.h. Errors: those of Validate(), or
  //   InvalidArgument: ranges that are not so, or of a group that is none.
  static absl::StatusOr<std::unique_ptr<ShardOptimizer>> Create(const OptimizerConfig& config,
                                                                std::vector<GroupRange> ranges);
  // `elements` >= 0, all with the optimizer's own settings.
  static absl::StatusOr<std::unique_ptr<ShardOptimizer>> Create(const OptimizerConfig& config,
                                                                std::int64_t elements);

  // One update in place. The gradient used is `grad[i] * grad_scale`.
  // Errors: InvalidArgument: a size is not elements(). On error nothing was
  //   written.
  virtual absl::Status Step(std::span<const float> grad, float grad_scale,
                            std::span<float> param) = 0;

  // Of the steps from now on. Errors: InvalidArgument: as Validate() says of lr.
  virtual absl::Status SetLearningRate(double lr) = 0;
  virtual double learning_rate() const = 0;

  virtual std::int64_t elements() const = 0;
  virtual std::int64_t state_bytes() const = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_OPTIMIZER_H_
