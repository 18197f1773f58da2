#include "common/policy/sync_policy.h"

#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Manifest ResNetLike() {
  Manifest manifest;
  for (const char* name : {"bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked",
                           "layer1.0.bn1.running_mean"}) {
    manifest.buffers.push_back({name, DType::kFloat32, {64}});
  }
  return manifest;
}

TEST(ValidatePolicy, AcceptsTheDefaultsAndEveryRoot) {
  LOCKSTEP_EXPECT_OK(Validate(SyncPolicy{}));
  LOCKSTEP_EXPECT_OK(Validate({.root = RootRank{3}}));
  LOCKSTEP_EXPECT_OK(Validate({.root = RootWorker{"w0"}}));
  LOCKSTEP_EXPECT_OK(Validate({.schedule = {.every_forwards = 0, .every_steps = 100}}));
}

TEST(ValidatePolicy, NamesTheFieldAndWhatIsAllowed) {
  struct Case {
    SyncPolicy policy;
    std::string words;
  };
  const std::vector<Case> cases = {
      {{.allow_list = {"a", "b", "re:("}}, "allow_list[2]: the pattern 're:(' is not a valid RE2"},
      {{.allow_list = {""}}, "allow_list[0]: the pattern is empty"},
      {{.ignore_list = {"a", "***"}}, "ignore_list[1]: the pattern '***'"},
      {{.allow_list = std::vector<std::string>(1001, "a")},
       "allow_list: has 1001 patterns; at most 1000"},
      {{.ignore_list = std::vector<std::string>(1001, "a")}, "ignore_list: has 1001"},
      {{.operation = Operation::kUnspecified}, "operation: is the unknown number 0"},
      {{.operation = static_cast<Operation>(9)}, "operation: is the unknown number 9"},
      {{.root = RootRank{-1}}, "root.rank: is -1; ranks count from 0"},
      {{.root = RootWorker{""}}, "root.worker: is empty"},
      {{.root = RootWorker{std::string(254, 'w')}}, "root.worker: is 'www"},
      {{.root = RootWorker{"w\n"}}, "root.worker: is 'w\\n'"},
      {{.schedule = {.every_forwards = -1}}, "schedule.every_forwards: is -1; expected 0"},
      {{.schedule = {.every_steps = -7}}, "schedule.every_steps: is -7"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(Validate(c.policy),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.words)));
  }
}

TEST(CheckPatternsMatch, AcceptsPatternsThatEachMatchABuffer) {
  LOCKSTEP_EXPECT_OK(CheckPatternsMatch({}, Manifest{}));
  LOCKSTEP_EXPECT_OK(CheckPatternsMatch(
      {.allow_list = {"**.running_*"}, .ignore_list = {"re:layer1.*", "bn1.*"}}, ResNetLike()));
}

TEST(CheckPatternsMatch, NamesThePatternAndNearNames) {
  EXPECT_THAT(
      CheckPatternsMatch({.allow_list = {"bn1.*", "bn1.runing_mean"}}, ResNetLike()),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("allow_list[1]: the pattern 'bn1.runing_mean' matches no buffer; "
                               "near names: bn1.running_mean, bn1.running_var"),
                     HasSubstr("The model has 4 buffers"), Not(HasSubstr("allow_list[0]")))));
  EXPECT_THAT(CheckPatternsMatch({.ignore_list = {"zzzzzz"}}, ResNetLike()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("ignore_list[0]"), Not(HasSubstr("near names")))));
  EXPECT_THAT(CheckPatternsMatch({.allow_list = {"**"}}, Manifest{}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("The model has 0 buffers")));
}

TEST(CheckPatternsMatch, CountsWhatItDoesNotDescribe) {
  const SyncPolicy policy = {.allow_list = std::vector<std::string>(4, "zzzzzz"),
                             .ignore_list = std::vector<std::string>(4, "yyyyyy")};
  EXPECT_THAT(CheckPatternsMatch(policy, ResNetLike()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("ignore_list[0]"), Not(HasSubstr("ignore_list[1]")),
                             HasSubstr("3 more patterns match no buffer"))));
}

TEST(DescribePolicy, FitsOnALine) {
  EXPECT_EQ(Describe(SyncPolicy{}),
            "broadcast_buffers on, allow all, ignore none, broadcast from the lowest rank, at "
            "start and before every forward, parameters at start");
  EXPECT_EQ(Describe(SyncPolicy{
                .broadcast_buffers = false,
                .allow_list = {"**.running_*", "x"},
                .ignore_list = {"y"},
                .root = RootWorker{"w3"},
                .schedule = {.at_start = false, .every_forwards = 0, .every_steps = 50},
                .broadcast_parameters_at_start = false,
            }),
            "broadcast_buffers off, allow **.running_*, x, ignore y, broadcast from worker w3, "
            "every 50 steps, parameters never");
  EXPECT_THAT(Describe(SyncPolicy{.schedule = {.at_start = false, .every_forwards = 0}}),
              HasSubstr("on command only"));
}

}  // namespace
}  // namespace lockstep
