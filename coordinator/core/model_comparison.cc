#include "coordinator/core/model_comparison.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/policy/model_check.h"

namespace lockstep {

namespace {

// Leaves out what both begin and end with: of it the policy synchronises the same.
void Trim(std::span<const TensorSpec>& a, std::span<const TensorSpec>& b) {
  const auto begins = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  a = {begins.first, a.end()};
  b = {begins.second, b.end()};
  const auto ends = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  a = a.first(static_cast<std::size_t>(a.rend() - ends.first));
  b = b.first(static_cast<std::size_t>(b.rend() - ends.second));
}

}  // namespace

std::optional<std::string> ModelComparison::FirstDifference(const std::string& a_name,
                                                            const Manifest& a,
                                                            const std::string& b_name,
                                                            const Manifest& b) {
  std::span<const TensorSpec> a_buffers = a.buffers, b_buffers = b.buffers;
  Trim(a_buffers, b_buffers);
  Manifest compared_a = {.optimizer = a.optimizer};
  Manifest compared_b = {.optimizer = b.optimizer};
  if (a.parameters != b.parameters) {
    compared_a.parameters = a.parameters;
    compared_b.parameters = b.parameters;
  } else if (!a_buffers.empty() || !b_buffers.empty()) {
    std::vector<absl::string_view> names;
    for (const TensorSpec& buffer : a_buffers) names.push_back(buffer.name);
    for (const TensorSpec& buffer : b_buffers) names.push_back(buffer.name);
    if (const absl::Status work = CheckMatchWork(Rules(), names); !work.ok()) {
      return absl::StrCat("too many buffers of ", a_name, " and ", b_name,
                          " differ to be looked up in the sync policy: ", work.message());
    }
    compared_a.buffers = Synchronised(a_buffers);
    compared_b.buffers = Synchronised(b_buffers);
    if (compared_a.buffers != compared_b.buffers) {
      return absl::StrCat(*lockstep::FirstDifference(a_name, compared_a, b_name, compared_b),
                          " (the sync policy selects it)");
    }
  }
  return lockstep::FirstDifference(a_name, compared_a, b_name, compared_b);
}

const BufferRules& ModelComparison::Rules() {
  if (!rules_) {
    absl::StatusOr<BufferRules> rules = BufferRules::Compile(policy_);
    LOCKSTEP_CHECK(rules.ok());
    rules_ = *std::move(rules);
  }
  return *rules_;
}

bool ModelComparison::IsSynchronised(const std::string& buffer) {
  const auto known = synchronised_.find(buffer);
  if (known != synchronised_.end()) return known->second;
  return synchronised_.emplace(buffer, Rules().Synchronises(buffer)).first->second;
}

std::vector<TensorSpec> ModelComparison::Synchronised(std::span<const TensorSpec> buffers) {
  std::vector<TensorSpec> synchronised;
  std::copy_if(buffers.begin(), buffers.end(), std::back_inserter(synchronised),
               [this](const TensorSpec& buffer) { return IsSynchronised(buffer.name); });
  return synchronised;
}

}  // namespace lockstep
