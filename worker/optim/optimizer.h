// What an optimizer is set to. How it steps is in shard_optimizer.h.
//
// Pure values; thread-compatible.
#ifndef LOCKSTEP_WORKER_OPTIM_OPTIMIZER_H_
#define LOCKSTEP_WORKER_OPTIM_OPTIMIZER_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"

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

// Errors: InvalidArgument: negative or not finite.
absl::Status CheckLearningRate(double lr);

// What an optimizer keeps for each element, one float, by torch::optim's name, and what it
// starts with.
struct ElementState {
  std::string name;
  float initial = 0;
};
std::vector<ElementState> ElementStatesOf(const OptimizerConfig& config);

const std::vector<ParameterGroup>& GroupsOf(const OptimizerConfig& config);

// "AdamW(lr=0.001, beta1=0.9, ...)", every setting with all its digits: equal
// text means equal settings.
std::string Describe(const OptimizerConfig& config);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_OPTIMIZER_H_
