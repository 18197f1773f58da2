#include "worker/core/agreement.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/digits.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

absl::Status DifferentSteps(std::span<const ControlWord> words,
                            const std::vector<std::string>& members) {
  std::vector<std::string> views;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    views.push_back(
        absl::StrCat("step ", words[rank].step, " on ", members[rank], " (rank ", rank, ")"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "ranks are at different steps: ", ListNames(views),
      "; all ranks must take the same steps, so start a new epoch from a common one"));
}

struct NamedSetting {
  absl::string_view name;
  double UpdateSettings::*value;
};
constexpr NamedSetting kSettings[] = {
    {"the learning rate", &UpdateSettings::learning_rate},
    {"max_grad_norm", &UpdateSettings::max_grad_norm},
    {"loss_scale", &UpdateSettings::loss_scale},
};

absl::Status CheckSettingsEqual(std::span<const ControlWord> words,
                                const std::vector<std::string>& members) {
  for (const NamedSetting& setting : kSettings) {
    const auto value = [&](const ControlWord& word) { return word.settings.*setting.value; };
    if (std::all_of(words.begin(), words.end(), [&](const ControlWord& word) {
          return value(word) == value(words[0]);
        })) {
      continue;
    }
    std::vector<std::string> views;
    for (std::size_t rank = 0; rank < words.size(); ++rank) {
      views.push_back(
          absl::StrCat(Digits(value(words[rank])), " on ", members[rank], " (rank ", rank, ")"));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("ranks disagree on ", setting.name, " at step ", words[0].step, ": ",
                     ListNames(views), "; give all ranks the same value at each step"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Agreement> Combine(std::span<const ControlWord> words,
                                  const std::vector<std::string>& members) {
  LOCKSTEP_CHECK(!words.empty() && words.size() == members.size());
  std::int64_t log_number = std::numeric_limits<std::int64_t>::max();
  std::int64_t saved = std::numeric_limits<std::int64_t>::max();
  Agreement agreement;
  double bound = 0;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const ControlWord& word = words[rank];
    if (word.step != words[0].step) return DifferentSteps(words, members);
    if (word.samples < 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(members[rank], " (rank ", rank, ") reports ", word.samples,
                       " samples at step ", word.step, "; it must be 0 or more"));
    }
    if (__builtin_add_overflow(agreement.samples, word.samples, &agreement.samples)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the samples of step ", word.step, " do not fit 64 bits, counted up to ",
                       members[rank], " (rank ", rank, ")"));
    }
    agreement.samples_by_rank.push_back(word.samples);
    log_number = std::min(log_number, word.log_number);
    saved = std::min(saved, word.saved);
    agreement.weights.push_back(word.weight);
    if (word.weight == 0) continue;
    if (word.not_finite != kAllFinite) {
      agreement.not_finite.push_back({static_cast<int>(rank), word.not_finite});
    }
    bound += std::fabs(static_cast<double>(word.weight)) * word.largest;
  }
  // Half of it leaves room for the rounding of each addition. NaN is no bound.
  agreement.finite =
      agreement.not_finite.empty() && bound <= std::numeric_limits<float>::max() / 2;
  LOCKSTEP_RETURN_IF_ERROR(CheckSettingsEqual(words, members));
  agreement.settings = words[0].settings;
  agreement.log_number = LogNumber(log_number);
  agreement.saved = saved;
  return agreement;
}

}  // namespace lockstep
