// How the ranks' values of a buffer become one.
#ifndef LOCKSTEP_COMMON_POLICY_OPERATION_H_
#define LOCKSTEP_COMMON_POLICY_OPERATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/manifest/dtype.h"
#include "common/manifest/reduction.h"

namespace lockstep {

// Wire values: never renumber.
enum class Operation : std::int32_t {
  kUnspecified = 0,
  kBroadcast = 1,      // the root's value wins
  kMean = 2,           // all ranks count alike
  kSum = 3,            // of what the ranks hold, not of what they added
  kMin = 4,
  kMax = 5,
  kNone = 6,           // each rank keeps its own: neither touched nor looked at
  kMeanBySamples = 7,  // a rank counts by its samples since the rule's last sync
};

// The operation of that number on the wire, or nothing for an unknown one or 0.
std::optional<Operation> OperationFromNumber(std::int64_t number);

// All of them, for people: "1 (broadcast), 2 (mean), ... or 7 (mean-by-samples)".
std::string OperationNumbers();

// "broadcast", "mean", "mean-by-samples", ...
absl::string_view OperationName(Operation operation);

// The reduction that carries it out; nothing for a broadcast and kNone.
std::optional<ReduceOp> ReduceOpOf(Operation operation);

// Whether a buffer of that type can be synchronised so: integers are never
// averaged, bytes of any type are broadcast (pytorch#63041).
bool IsDefined(Operation operation, DType dtype);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_OPERATION_H_
