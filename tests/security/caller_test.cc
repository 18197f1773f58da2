#include "security/caller.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(CallerOfCertificate, HasTheRolesThatItsNamesGive) {
  EXPECT_THAT(CallerOfCertificate("w0", {"w0.example.org", "worker.role.lockstep"}),
              (Caller{.name = "w0", .roles = {Role::kWorker}}));
  EXPECT_THAT(CallerOfCertificate("", {"operator.role.lockstep", "viewer.role.lockstep"}).roles,
              ElementsAre(Role::kViewer, Role::kOperator));
  EXPECT_THAT(CallerOfCertificate("operator",
                                  {"operator", "xoperator.role.lockstep", "*.role.lockstep",
                                   "operator.role.lockstep.example.org", ".role.lockstep"})
                  .roles,
              IsEmpty());
}

TEST(CallerOfCertificate, IsBoundToTheJobsAndWorkersThatItNames) {
  const Caller caller = CallerOfCertificate(
      "w0", {"worker.role.lockstep", "mnist.job.lockstep", "w.0.worker.lockstep"});
  EXPECT_THAT(caller.jobs, ElementsAre("mnist"));
  EXPECT_THAT(caller.workers, ElementsAre("w.0"));
}

TEST(CheckMayUse, HoldsForTheJobsOfABoundCaller) {
  const Caller bound = {.name = "alice", .jobs = {"a", "b"}};
  LOCKSTEP_EXPECT_OK(CheckMayUse(bound, "a"));
  LOCKSTEP_EXPECT_OK(CheckMayUse(bound, "b"));
  EXPECT_THAT(CheckMayUse(bound, "c"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("alice"), HasSubstr("a or b"), HasSubstr("'c'"))));
  EXPECT_FALSE(CheckMayUse(bound, "").ok());
  LOCKSTEP_EXPECT_OK(CheckMayUse({.name = "bob"}, "c"));
}

TEST(CheckMayAttend, HoldsForBothTheJobAndTheName) {
  const Caller bound = {.name = "w0", .jobs = {"a"}, .workers = {"w0"}};
  LOCKSTEP_EXPECT_OK(CheckMayAttend(bound, "a", "w0"));
  EXPECT_THAT(CheckMayAttend(bound, "a", "w1"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("'w1'")));
  EXPECT_THAT(CheckMayAttend(bound, "b", "w0"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("'b'")));
  LOCKSTEP_EXPECT_OK(CheckMayAttend({}, "any", "body"));
}

}  // namespace
}  // namespace lockstep
