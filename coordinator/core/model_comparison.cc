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
  Manifest compared_a = {.buffers = Synchronised(a.buffers), .optimizer = a.optimizer};
  Manifest compared_b = {.buffers = Synchronised(b.buffers), .optimizer = b.optimizer};
  const bool is_of_buffers =
      a.parameters == b.parameters && compared_a.buffers != compared_b.buffers;
  if (a.parameters != b.parameters) {
    compared_a.parameters = a.parameters;
    compared_b.parameters = b.parameters;
  }
  std::optional<std::string> difference =
      lockstep::FirstDifference(a_name, compared_a, b_name, compared_b);
  if (is_of_buffers) absl::StrAppend(&*difference, " (the sync policy selects it)");
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

std::vector<TensorSpec> ModelComparison::Synchronised(const std::vector<TensorSpec>& buffers) {
  std::vector<TensorSpec> synchronised;
  std::copy_if(buffers.begin(), buffers.end(), std::back_inserter(synchronised),
               [this](const TensorSpec& buffer) { return IsSynchronised(buffer.name); });
  return synchronised;
}

}  // namespace lockstep
