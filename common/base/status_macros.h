// Early return on errors, in the shapes that later Abseil releases provide.
#ifndef LOCKSTEP_COMMON_BASE_STATUS_MACROS_H_
#define LOCKSTEP_COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the function if `expr`, an absl::Status, is an error.
#define LOCKSTEP_RETURN_IF_ERROR(expr)                        \
  do {                                                        \
    absl::Status lockstep_status = (expr);                    \
    if (!lockstep_status.ok()) return lockstep_status;        \
  } while (false)

// Assigns the value of `expr`, an absl::StatusOr, to `lhs`, or returns its error.
#define LOCKSTEP_ASSIGN_OR_RETURN(lhs, expr) \
  LOCKSTEP_ASSIGN_OR_RETURN_IMPL_(           \
      LOCKSTEP_CONCAT_(lockstep_value_, __LINE__), lhs, expr)

#define LOCKSTEP_ASSIGN_OR_RETURN_IMPL_(value, lhs, expr) \
  auto value = (expr);                                    \
  if (!value.ok()) return std::move(value).status();      \
  lhs = *std::move(value)

#define LOCKSTEP_CONCAT_(a, b) LOCKSTEP_CONCAT_IMPL_(a, b)
#define LOCKSTEP_CONCAT_IMPL_(a, b) a##b

#endif  // LOCKSTEP_COMMON_BASE_STATUS_MACROS_H_
