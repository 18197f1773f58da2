#include "common/policy/sync_policy.h"

#include <set>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

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
      {{.operation = static_cast<Operation>(9)},
       "operation: is the unknown number 9; expected 1 (broadcast), 2 (mean), 3 (sum), 4 (min), 5 (max), 6 "
       "(none) or 7 (mean-by-samples)"},
      {{.rules = std::vector<SyncRule>(1001, {.pattern = "a"})}, "rules: has 1001 rules; at most"},
      {{.rules = {{.pattern = "a"}, {.pattern = "re:("}}}, "rules[1].pattern: the pattern 're:('"},
      {{.rules = {{.pattern = "a", .operation = Operation::kUnspecified}}},
       "rules[0].operation: is the unknown number 0"},
      {{.rules = {{.pattern = "a", .root = RootRank{-2}}}}, "rules[0].root.rank: is -2"},
      {{.rules = {{.pattern = "a", .schedule = Schedule{.every_steps = -1}}}},
       "rules[0].schedule.every_steps: is -1"},
      {{.broadcast_parameters_every_steps = -1}, "broadcast_parameters_every_steps: is -1"},
      {{.check_parameters_every_steps = -1}, "check_parameters_every_steps: is -1"},
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

// They would keep the coordinator busy for minutes.
TEST(ValidatePolicy, BoundsWhatAllPatternsTogetherCost) {
  const std::vector<std::string> names(1000, std::string(80, 'n'));
  LOCKSTEP_EXPECT_OK(Validate({.allow_list = names,
                               .ignore_list = names,
                               .rules = std::vector<SyncRule>(1000, {.pattern = names[0]})}));
  const std::string large = "re:\\pL{1,40}";
  LOCKSTEP_EXPECT_OK(Validate({.allow_list = {large}}));
  const auto is_refused_at = [](const std::string& field) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    ::testing::AllOf(HasSubstr(field),
                                     HasSubstr("at most 300000 are allowed: use fewer")));
  };
  EXPECT_THAT(Validate({.allow_list = std::vector<std::string>(1000, large)}),
              is_refused_at("allow_list["));
  // Each of them alone is small enough.
  const std::vector<std::string> some(4, large);
  LOCKSTEP_EXPECT_OK(Validate({.allow_list = some}));
  EXPECT_THAT(Validate({.allow_list = some,
                        .rules = std::vector<SyncRule>(4, {.pattern = large})}),
              is_refused_at("rules["));
}

// A hundred of them fit a message to a worker.
TEST(ValidatePolicy, BoundsTheBytesOfPatternsAndRoots) {
  const SyncRule rule = {.pattern = std::string(10, 'n'), .root = RootWorker{std::string(250, 'w')}};
  LOCKSTEP_EXPECT_OK(Validate({.rules = std::vector<SyncRule>(1000, rule)}));
  EXPECT_THAT(Validate({.allow_list = std::vector<std::string>(10, std::string(1000, 'a')),
                        .rules = std::vector<SyncRule>(1000, rule)}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::AllOf(HasSubstr("rules[9"), HasSubstr("at most 262144"))));
}

TEST(DescribePolicy, SaysWhenAndWhatDiffersFromTheDefault) {
  EXPECT_EQ(Describe(SyncPolicy{}), "on; at start and before every forward");
  EXPECT_EQ(Describe(SyncPolicy{
                .broadcast_buffers = false,
                .allow_list = {"**.running_*", "x"},
                .ignore_list = {"y"},
                .root = RootWorker{"w3"},
                .schedule = {.at_start = false, .every_forwards = 0, .every_steps = 50},
                .broadcast_parameters_at_start = false,
            }),
            "off; allow **.running_*, x; ignore y; from worker w3; every 50 steps; parameters not "
            "broadcast");
  EXPECT_EQ(Describe(SyncPolicy{
                .rules = {{.pattern = "**.count",
                           .operation = Operation::kSum,
                           .schedule = Schedule{.every_forwards = 0, .before_checkpoint = true}},
                          {.pattern = "x", .root = RootRank{2}},
                          {.pattern = "y"}},
                .operation = Operation::kMeanBySamples,
                .skip_unchanged = true,
                .broadcast_parameters_every_steps = 9,
                .check_parameters_every_steps = 3,
            }),
            "on; rule **.count by sum, at start and before checkpoint; rule x from rank 2; rule y "
            "as the policy says; by mean-by-samples; at start and before every forward; unless "
            "unchanged; parameters broadcast at start and broadcast every 9 steps and compared "
            "every 3 steps");
  EXPECT_EQ(Describe(SyncPolicy{.schedule = {.at_start = false, .every_forwards = 0}}),
            "on; on command only");
}

TEST(DescribePolicy, CountsRulesThatAreManyInsteadOfNamingThem) {
  SyncPolicy policy = {.rules = std::vector<SyncRule>(3, {.pattern = "x"})};
  EXPECT_THAT(Describe(policy), ::testing::Not(HasSubstr("more")));
  policy.rules.resize(1000, {.pattern = "y"});
  EXPECT_EQ(Describe(policy),
            "on; rule x as the policy says; rule x as the policy says; rule x as the policy says; "
            "997 more rules; at start and before every forward");
}

TEST(DigestOfPolicy, DiffersForEachField) {
  const std::vector<SyncPolicy> policies = {
      {},
      {.broadcast_buffers = false},
      {.allow_list = {"a"}},
      {.ignore_list = {"a"}},
      {.rules = {{.pattern = "a"}}},
      {.rules = {{.pattern = "b"}}},
      {.rules = {{.pattern = "a", .operation = Operation::kMean}}},
      {.rules = {{.pattern = "a", .root = LowestRank{}}}},
      {.rules = {{.pattern = "a", .root = RootRank{0}}}},
      {.rules = {{.pattern = "a", .schedule = Schedule{}}}},
      {.rules = {{.pattern = "a", .schedule = Schedule{.before_checkpoint = true}}}},
      {.operation = Operation::kMean},
      {.root = RootRank{0}},
      {.root = RootWorker{"w"}},
      {.schedule = {.at_start = false}},
      {.schedule = {.every_forwards = 2}},
      {.schedule = {.every_steps = 1}},
      {.schedule = {.before_evaluation = true}},
      {.schedule = {.before_checkpoint = true}},
      {.skip_unchanged = true},
      {.broadcast_parameters_at_start = false},
      {.broadcast_parameters_every_steps = 1},
      {.check_parameters_every_steps = 1},
  };
  std::set<std::uint64_t> digests;
  for (const SyncPolicy& policy : policies) digests.insert(Digest(policy));
  EXPECT_EQ(digests.size(), policies.size());
  EXPECT_EQ(Digest(policies[6]), Digest(SyncPolicy(policies[6])));
}

}  // namespace
}  // namespace lockstep
