#include "common/policy/operation.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// By number.
constexpr absl::string_view kNames[] = {"unspecified", "broadcast", "mean", "sum",
                                        "min",         "max",       "none", "mean-by-samples"};
constexpr std::int64_t kCount = sizeof(kNames) / sizeof(kNames[0]);
static_assert(kCount == static_cast<std::int64_t>(Operation::kMeanBySamples) + 1);

}  // namespace

std::optional<Operation> OperationFromNumber(std::int64_t number) {
  if (number < 1 || number >= kCount) return std::nullopt;
  return static_cast<Operation>(number);
}

std::string OperationNumbers() {
  std::string text;
  for (std::int64_t number = 1; number < kCount; ++number) {
    absl::StrAppend(&text, number == 1 ? "" : number + 1 < kCount ? ", " : " or ", number, " (",
                    kNames[number], ")");
  }
  return text;
}

absl::string_view OperationName(Operation operation) {
  const auto number = static_cast<std::int64_t>(operation);
  return kNames[number >= 0 && number < kCount ? number : 0];
}

std::optional<ReduceOp> ReduceOpOf(Operation operation) {
  switch (operation) {
    case Operation::kMean:
    case Operation::kMeanBySamples:
      return ReduceOp::kMean;
    case Operation::kSum:
      return ReduceOp::kSum;
    case Operation::kMin:
      return ReduceOp::kMin;
    case Operation::kMax:
      return ReduceOp::kMax;
    case Operation::kUnspecified:
    case Operation::kBroadcast:
    case Operation::kNone:
      break;
  }
  return std::nullopt;
}

bool IsDefined(Operation operation, DType dtype) {
  const std::optional<ReduceOp> reduce = ReduceOpOf(operation);
  return !reduce.has_value() || IsReducible(dtype, *reduce);
}

}  // namespace lockstep
