#include "security/roles.h"

#include <optional>
#include <string>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/membership.pb.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RoleOf, KnowsEachByItsName) {
  for (const Role role : {Role::kViewer, Role::kWorker, Role::kOperator}) {
    EXPECT_EQ(RoleOf(RoleName(role)), role);
  }
  for (const char* name : {"", "Viewer", "root"}) EXPECT_EQ(RoleOf(name), std::nullopt);
}

struct Case {
  std::string method;
  bool viewer, worker, is_operator;
};

TEST(CheckMayCall, FollowsTheTable) {
  for (const Case& each : {
           Case{"/lockstep.v1.JobService/GetJob", true, false, true},
           Case{"/lockstep.v1.JobService/CreateJob", false, false, true},
           Case{"/lockstep.v1.JobService/DrainWorker", false, false, true},
           Case{"/lockstep.v1.MembershipService/Attend", false, true, false},
           Case{"/lockstep.v1.SyncPolicyService/UpdateSyncPolicy", false, true, true},
           Case{"/lockstep.v1.SyncPolicyService/PreviewSyncPolicy", true, false, true},
           Case{"/grpc.health.v1.Health/Check", true, true, true},
       }) {
    SCOPED_TRACE(each.method);
    EXPECT_EQ(CheckMayCall({Role::kViewer}, each.method).ok(), each.viewer);
    EXPECT_EQ(CheckMayCall({Role::kWorker}, each.method).ok(), each.worker);
    EXPECT_EQ(CheckMayCall({Role::kOperator}, each.method).ok(), each.is_operator);
    EXPECT_FALSE(CheckMayCall({}, each.method).ok());
  }
}

TEST(CheckMayCall, SaysWhatIsNeeded) {
  EXPECT_THAT(CheckMayCall({Role::kViewer}, "/lockstep.v1.JobService/DeleteJob"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("operator"), HasSubstr("is viewer"))));
}

TEST(CheckMayCall, NobodyMayCallWhatIsNotInTheTable) {
  for (const char* method : {"", "/", "/lockstep.v1.JobService/GetJob/", "GetJob",
                             "/lockstep.v1.JobService/Other"}) {
    EXPECT_THAT(CheckMayCall({Role::kViewer, Role::kWorker, Role::kOperator}, method),
                StatusIs(absl::StatusCode::kPermissionDenied));
  }
}

// A method that is added must be thought of.
TEST(CheckMayCall, KnowsEachMethodOfOurServices) {
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::Proposal::descriptor()->file(),
        v1::SyncPolicy::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const std::string method = absl::StrCat("/", file->service(s)->full_name(), "/",
                                                file->service(s)->method(m)->name());
        EXPECT_TRUE(
            CheckMayCall({Role::kViewer, Role::kWorker, Role::kOperator}, method).ok())
            << method;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
