#include "worker/engine/engine_options.h"

#include "absl/strings/str_cat.h"
#include "common/base/digits.h"

namespace lockstep {
namespace {

// Beyond it what the gradient is multiplied by would not be a normal float.
constexpr double kMinLossScale = 1e-30;
constexpr double kMaxLossScale = 1e30;

}  // namespace

absl::string_view StepPhaseName(StepPhase phase) {
  switch (phase) {
    case StepPhase::kForward:
      return "forward";
    case StepPhase::kCollected:
      return "collected";
    case StepPhase::kAgreed:
      return "agreed";
    case StepPhase::kReducing:
      return "reducing";
    case StepPhase::kPreparing:
      return "preparing";
    case StepPhase::kPrepared:
      return "prepared";
    case StepPhase::kCommitted:
      return "committed";
    case StepPhase::kUpdating:
      return "updating";
    case StepPhase::kSpreading:
      return "spreading";
    case StepPhase::kApplying:
      return "applying";
  }
  return "an unknown phase";
}

std::optional<StepPhase> StepPhaseOf(absl::string_view name) {
  for (const StepPhase phase :
       {StepPhase::kForward, StepPhase::kCollected, StepPhase::kAgreed, StepPhase::kReducing,
        StepPhase::kPreparing, StepPhase::kPrepared, StepPhase::kCommitted, StepPhase::kUpdating,
        StepPhase::kSpreading, StepPhase::kApplying}) {
    if (StepPhaseName(phase) == name) return phase;
  }
  return std::nullopt;
}

absl::Status CheckpointOptions::Validate() const {
  if (every_steps < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoints every ", every_steps, " steps; allowed is 0 (only on command) or more"));
  }
  if (keep < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoints to keep: ", keep, "; allowed is 0 (all) or more"));
  }
  if (every_steps > 0 && directory.empty()) {
    return absl::InvalidArgumentError(
        "checkpoints are to be written, but there is no directory for them; name one");
  }
  return absl::OkStatus();
}

absl::Status EngineOptions::Validate() const {
  if (worker.empty()) {
    return absl::InvalidArgumentError(
        "the engine's option worker is empty; give the name by which it attends");
  }
  if (join_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the engine's option join_timeout is ", absl::FormatDuration(join_timeout),
                     "; allowed is more than 0"));
  }
  if (operation_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("the engine's option operation_timeout is ",
                                                   absl::FormatDuration(operation_timeout),
                                                   "; allowed is more than 0"));
  }
  return absl::OkStatus();
}

absl::Status StepOptions::Validate() const {
  if (samples < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the step has ", samples, " samples; allowed is 0 or more"));
  }
  if (!(max_grad_norm >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the step's max_grad_norm is ", Digits(max_grad_norm),
                     "; allowed is a number above 0, or 0 for no clipping"));
  }
  if (!(loss_scale >= kMinLossScale && loss_scale <= kMaxLossScale)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the step's loss_scale is ", Digits(loss_scale), "; allowed is ",
                     Digits(kMinLossScale), " to ", Digits(kMaxLossScale)));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
