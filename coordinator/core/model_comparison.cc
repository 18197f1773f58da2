#include "coordinator/core/model_comparison.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace lockstep {

std::optional<std::string> ModelComparison::FirstDifference(const std::string& a_name,
                                                            const Manifest& a,
                                                            const std::string& b_name,
                                                            const Manifest& b) {
  if (a == b) return std::nullopt;
  const Manifest compared_a = Compared(a), compared_b = Compared(b);
  std::optional<std::string> difference =
      lockstep::FirstDifference(a_name, compared_a, b_name, compared_b);
  if (difference && a.parameters == b.parameters && compared_a.buffers != compared_b.buffers) {
    absl::StrAppend(&*difference, " (the sync policy selects it)");
  }
  return difference;
}

bool ModelComparison::IsSynchronised(const std::string& buffer) {
  const auto known = synchronised_.find(buffer);
  if (known != synchronised_.end()) return known->second;
  if (!rules_) {
    absl::StatusOr<BufferRules> rules = BufferRules::Compile(policy_);
    LOCKSTEP_CHECK(rules.ok());
    rules_ = *std::move(rules);
  }
  const int treatment = rules_->Find(buffer).treatment;
  const bool is_synchronised =
      treatment >= 0 &&
      rules_->treatments()[static_cast<std::size_t>(treatment)].operation != Operation::kNone;
  synchronised_.emplace(buffer, is_synchronised);
  return is_synchronised;
}

Manifest ModelComparison::Compared(const Manifest& model) {
  Manifest compared = {.parameters = model.parameters, .optimizer = model.optimizer};
  std::copy_if(model.buffers.begin(), model.buffers.end(), std::back_inserter(compared.buffers),
               [this](const TensorSpec& buffer) { return IsSynchronised(buffer.name); });
  return compared;
}

}  // namespace lockstep
