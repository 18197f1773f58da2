#include "worker/optim/optimizer.h"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/digits.h"
#include "common/base/status_macros.h"
#include "common/manifest/manifest.h"
#include "common/policy/pattern.h"

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

absl::Status CheckLearningRate(double lr) { return CheckNotNegative("lr", lr); }

std::vector<ElementState> ElementStatesOf(const OptimizerConfig& config) {
  struct {
    std::vector<ElementState> operator()(const Sgd& sgd) const {
      if (sgd.momentum == 0) return {};
      return {{.name = "momentum_buffer"}};
    }
    std::vector<ElementState> operator()(const Adam&) const { return Moments(); }
    std::vector<ElementState> operator()(const AdamW&) const { return Moments(); }
    std::vector<ElementState> operator()(const Adagrad& adagrad) const {
      return {{.name = "sum",
               .initial = static_cast<float>(adagrad.initial_accumulator_value)}};
    }
    static std::vector<ElementState> Moments() {
      return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
    }
  } states;
  return std::visit(states, config);
}

const std::vector<ParameterGroup>& GroupsOf(const OptimizerConfig& config) {
  return std::visit([](const auto& c) -> const std::vector<ParameterGroup>& { return c.groups; },
                    config);
}

std::string Describe(const OptimizerConfig& config) {
  return std::visit([](const auto& c) { return Text(c); }, config);
}

}  // namespace lockstep
