// gMock matchers for absl::Status and absl::StatusOr: IsOk(), StatusIs(code)
// and StatusIs(code, HasSubstr("...")).
#ifndef LOCKSTEP_COMMON_BASE_STATUS_MATCHERS_H_
#define LOCKSTEP_COMMON_BASE_STATUS_MATCHERS_H_

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"

namespace lockstep {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P(StatusIs, code, "has code " + absl::StatusCodeToString(code)) {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code;
}

MATCHER_P2(StatusIs, code, message,
           "has code " + absl::StatusCodeToString(code) + " and a message that matches") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         testing::Matches(message)(std::string(StatusOf(arg).message()));
}

#define LOCKSTEP_ASSERT_OK(expr) ASSERT_THAT(expr, ::lockstep::IsOk())
#define LOCKSTEP_EXPECT_OK(expr) EXPECT_THAT(expr, ::lockstep::IsOk())

// Declares `lhs` with the value of `expr`, or fails the test.
#define LOCKSTEP_ASSERT_OK_AND_ASSIGN(lhs, expr) \
  LOCKSTEP_ASSERT_OK_AND_ASSIGN_IMPL_(           \
      LOCKSTEP_MATCHERS_CONCAT_(lockstep_value_, __LINE__), lhs, expr)
#define LOCKSTEP_ASSERT_OK_AND_ASSIGN_IMPL_(value, lhs, expr) \
  auto value = (expr);                                        \
  ASSERT_THAT(value, ::lockstep::IsOk());                     \
  lhs = *std::move(value)
#define LOCKSTEP_MATCHERS_CONCAT_(a, b) LOCKSTEP_MATCHERS_CONCAT_IMPL_(a, b)
#define LOCKSTEP_MATCHERS_CONCAT_IMPL_(a, b) a##b

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_STATUS_MATCHERS_H_
