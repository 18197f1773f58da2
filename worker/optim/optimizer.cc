#include "worker/optim/optimizer.h"

#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/digits.h"
#include "common/base/status_macros.h"
#include "common/manifest/manifest.h"
#include "common/policy/pattern.h"
#include "worker/optim/adagrad.h"
#include "worker/optim/adam.h"
#include "worker/optim/adamw.h"
#include "worker/optim/sgd.h"

namespace lockstep {
namespace {

absl::Status Refuse(absl::string_view name, double value, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("the optimizer's ", name, " is ", Digits(value), "; allowed is ", allowed));
}

absl::Status CheckNotNegative(absl::string_view name, double value) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return Refuse(name, value, "a finite number of 0 or more");
}

absl::Status CheckBeta(absl::string_view name, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return Refuse(name, value, "0 or more and less than 1");
}

absl::Status CheckGroups(const std::vector<ParameterGroup>& groups) {
  if (groups.size() > kMaxParameterGroups) {
    return absl::InvalidArgumentError(absl::StrCat("the optimizer has ", groups.size(),
                                                   " groups; allowed are up to ",
                                                   kMaxParameterGroups));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string name = absl::StrCat("groups[", i, "].");
    const absl::StatusOr<Pattern> pattern = Pattern::Parse(groups[i].pattern);
    if (!pattern.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("the optimizer's ", name, "pattern: ",
                                                     pattern.status().message()));
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative(name + "lr_scale", groups[i].lr_scale));
    LOCKSTEP_RETURN_IF_ERROR(
        CheckNotNegative(name + "weight_decay", groups[i].weight_decay.value_or(0)));
  }
  return absl::OkStatus();
}

absl::Status Check(const Sgd& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("lr", config.lr));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("momentum", config.momentum));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("weight_decay", config.weight_decay));
  if (!std::isfinite(config.dampening)) {
    return Refuse("dampening", config.dampening, "a finite number");
  }
  if (config.nesterov && (config.momentum == 0 || config.dampening != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the optimizer's nesterov is true with momentum ", Digits(config.momentum),
        " and dampening ", Digits(config.dampening),
        "; allowed is momentum above 0 and dampening 0"));
  }
  return absl::OkStatus();
}

absl::Status Check(const Adagrad& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("lr", config.lr));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("lr_decay", config.lr_decay));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("weight_decay", config.weight_decay));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckNotNegative("initial_accumulator_value", config.initial_accumulator_value));
  return CheckNotNegative("eps", config.eps);
}

template <typename AdamLike>
absl::Status Check(const AdamLike& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("lr", config.lr));
  LOCKSTEP_RETURN_IF_ERROR(CheckBeta("beta1", config.beta1));
  LOCKSTEP_RETURN_IF_ERROR(CheckBeta("beta2", config.beta2));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("eps", config.eps));
  return CheckNotNegative("weight_decay", config.weight_decay);
}

std::string Text(const std::vector<ParameterGroup>& groups) {
  std::string text;
  for (const ParameterGroup& group : groups) {
    absl::StrAppend(&text, "; '", absl::Utf8SafeCEscape(group.pattern),
                    "': lr_scale=", Digits(group.lr_scale));
    if (group.weight_decay) {
      absl::StrAppend(&text, ", weight_decay=", Digits(*group.weight_decay));
    }
  }
  return text;
}

std::string Text(const Sgd& config) {
  return absl::StrCat("SGD(lr=", Digits(config.lr), ", momentum=", Digits(config.momentum),
                      ", dampening=", Digits(config.dampening),
                      ", weight_decay=", Digits(config.weight_decay),
                      ", nesterov=", config.nesterov ? "true" : "false", Text(config.groups), ")");
}

template <typename AdamLike>
std::string AdamText(absl::string_view name, const AdamLike& config) {
  return absl::StrCat(name, "(lr=", Digits(config.lr), ", beta1=", Digits(config.beta1),
                      ", beta2=", Digits(config.beta2), ", eps=", Digits(config.eps),
                      ", weight_decay=", Digits(config.weight_decay), Text(config.groups), ")");
}
std::string Text(const Adam& config) { return AdamText("Adam", config); }
std::string Text(const AdamW& config) { return AdamText("AdamW", config); }

std::string Text(const Adagrad& config) {
  return absl::StrCat("Adagrad(lr=", Digits(config.lr), ", lr_decay=", Digits(config.lr_decay),
                      ", weight_decay=", Digits(config.weight_decay),
                      ", initial_accumulator_value=", Digits(config.initial_accumulator_value),
                      ", eps=", Digits(config.eps), Text(config.groups), ")");
}

// The state of the elements from `begin` on that `param` is about.
std::span<float> Part(std::vector<float>& state, std::size_t begin, std::span<float> param) {
  return std::span(state).subspan(begin, param.size());
}

// What a kernel keeps between steps: up to two numbers per element. Each steps the
// elements from `begin` on.
class SgdState {
 public:
  SgdState(const Sgd& config, std::int64_t elements)
      : momentum_(config.momentum == 0 ? 0 : elements) {}

  void Step(const Sgd& config, std::int64_t step, std::size_t begin, std::span<const float> grad,
            float grad_scale, std::span<float> param) {
    const MomentumState state = step == 1 ? MomentumState::kNew : MomentumState::kHeld;
    const std::span<float> momentum =
        momentum_.empty() ? std::span<float>() : Part(momentum_, begin, param);
    SgdStep(config, state, grad, grad_scale, momentum, param);
  }
  std::size_t floats() const { return momentum_.size(); }

 private:
  std::vector<float> momentum_;
};

template <typename AdamLike>
class MomentsState {
 public:
  MomentsState(const AdamLike&, std::int64_t elements)
      : exp_avg_(elements), exp_avg_sq_(elements) {}

  void Step(const AdamLike& config, std::int64_t step, std::size_t begin,
            std::span<const float> grad, float grad_scale, std::span<float> param) {
    Kernel(config, step, grad, grad_scale, Part(exp_avg_, begin, param),
           Part(exp_avg_sq_, begin, param), param);
  }
  std::size_t floats() const { return exp_avg_.size() + exp_avg_sq_.size(); }

 private:
  static constexpr auto Kernel = [] {
    if constexpr (std::is_same_v<AdamLike, Adam>) {
      return &AdamStep;
    } else {
      return &AdamWStep;
    }
  }();

  std::vector<float> exp_avg_;
  std::vector<float> exp_avg_sq_;
};

class AdagradState {
 public:
  AdagradState(const Adagrad& config, std::int64_t elements)
      : sum_(elements, static_cast<float>(config.initial_accumulator_value)) {}

  void Step(const Adagrad& config, std::int64_t step, std::size_t begin,
            std::span<const float> grad, float grad_scale, std::span<float> param) {
    AdagradStep(config, step, grad, grad_scale, Part(sum_, begin, param), param);
  }
  std::size_t floats() const { return sum_.size(); }

 private:
  std::vector<float> sum_;
};

template <typename Config, typename State>
class ShardOptimizerOf final : public ShardOptimizer {
 public:
  ShardOptimizerOf(const Config& config, std::vector<GroupRange> ranges)
      : groups_(config.groups),
        settings_(groups_.size() + 1, WithoutGroups(config)),
        ranges_(std::move(ranges)),
        elements_(ranges_.empty() ? 0 : ranges_.back().end),
        state_(config, elements_) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      Config& settings = settings_[i + 1];
      settings.weight_decay = groups_[i].weight_decay.value_or(config.weight_decay);
    }
    PutLearningRate(config.lr);
  }

  absl::Status Step(std::span<const float> grad, float grad_scale,
                    std::span<float> param) override {
    const auto expected = static_cast<std::size_t>(elements_);
    if (grad.size() != expected || param.size() != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the step got ", grad.size(), " gradient and ", param.size(),
          " parameter elements; this shard has ", elements_));
    }
    ++step_;
    for (const GroupRange& range : ranges_) {
      const auto begin = static_cast<std::size_t>(range.begin);
      const std::size_t size = static_cast<std::size_t>(range.end) - begin;
      state_.Step(settings_[range.group + 1], step_, begin, grad.subspan(begin, size), grad_scale,
                  param.subspan(begin, size));
    }
    return absl::OkStatus();
  }

  absl::Status SetLearningRate(double lr) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("lr", lr));
    PutLearningRate(lr);
    return absl::OkStatus();
  }

  double learning_rate() const override { return settings_[0].lr; }
  std::int64_t elements() const override { return elements_; }
  std::int64_t state_bytes() const override {
    return static_cast<std::int64_t>(state_.floats() * sizeof(float));
  }

 private:
  static Config WithoutGroups(Config config) {
    config.groups.clear();
    return config;
  }

  void PutLearningRate(double lr) {
    settings_[0].lr = lr;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      settings_[i + 1].lr = lr * groups_[i].lr_scale;
    }
  }

  const std::vector<ParameterGroup> groups_;
  std::vector<Config> settings_;  // the optimizer's own, then those of each group
  const std::vector<GroupRange> ranges_;
  const std::int64_t elements_;
  std::int64_t step_ = 0;
  State state_;
};

template <typename State, typename Config>
std::unique_ptr<ShardOptimizer> MakeOf(const Config& config, std::vector<GroupRange> ranges) {
  return std::make_unique<ShardOptimizerOf<Config, State>>(config, std::move(ranges));
}
std::unique_ptr<ShardOptimizer> Make(const Sgd& config, std::vector<GroupRange> ranges) {
  return MakeOf<SgdState>(config, std::move(ranges));
}
std::unique_ptr<ShardOptimizer> Make(const Adagrad& config, std::vector<GroupRange> ranges) {
  return MakeOf<AdagradState>(config, std::move(ranges));
}
template <typename AdamLike>
std::unique_ptr<ShardOptimizer> Make(const AdamLike& config, std::vector<GroupRange> ranges) {
  return MakeOf<MomentsState<AdamLike>>(config, std::move(ranges));
}

absl::Status CheckRanges(const std::vector<GroupRange>& ranges, std::size_t groups) {
  std::int64_t end = 0;
  for (const GroupRange& range : ranges) {
    if (range.begin != end || range.end < range.begin || range.group < kNoGroup ||
        range.group >= static_cast<std::int64_t>(groups)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a range of group ", range.group, " from element ", range.begin, " to ", range.end,
          "; expected is one that starts at ", end, ", of a group below ", groups));
    }
    end = range.end;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const OptimizerConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(std::visit([](const auto& c) { return Check(c); }, config));
  LOCKSTEP_RETURN_IF_ERROR(CheckGroups(GroupsOf(config)));
  const std::size_t bytes = Describe(config).size();
  if (bytes <= kMaxOptimizerBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the optimizer's settings have ", bytes, " bytes as text; allowed are up to ",
      kMaxOptimizerBytes, ", so use fewer groups or shorter patterns"));
}

const std::vector<ParameterGroup>& GroupsOf(const OptimizerConfig& config) {
  return std::visit([](const auto& c) -> const std::vector<ParameterGroup>& { return c.groups; },
                    config);
}

std::string Describe(const OptimizerConfig& config) {
  return std::visit([](const auto& c) { return Text(c); }, config);
}

absl::StatusOr<std::unique_ptr<ShardOptimizer>> ShardOptimizer::Create(
    const OptimizerConfig& config, std::vector<GroupRange> ranges) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(config));
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges(ranges, GroupsOf(config).size()));
  return std::visit([&](const auto& c) { return Make(c, std::move(ranges)); }, config);
}

absl::StatusOr<std::unique_ptr<ShardOptimizer>> ShardOptimizer::Create(
    const OptimizerConfig& config, std::int64_t elements) {
  return Create(config, std::vector<GroupRange>{{0, elements, kNoGroup}});
}

}  // namespace lockstep
