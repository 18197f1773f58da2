#include "common/policy/model_check.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

TEST(CheckPatternsMatch, LooksAtRulesToo) {
  EXPECT_THAT(CheckPatternsMatch({.rules = {{.pattern = "bn1.*"}, {.pattern = "bn1.running_mea"}}},
                                 ResNetLike()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rules[1].pattern: the pattern 'bn1.running_mea' matches no "
                                 "buffer; near names: bn1.running_mean")));
}

Manifest BatchNorm() {
  Manifest manifest;
  manifest.buffers = {{"bn.running_mean", DType::kFloat32, {64}},
                      {"bn.running_var", DType::kFloat32, {64}},
                      {"bn.num_batches_tracked", DType::kInt64, {}},
                      {"mask", DType::kBool, {8}},
                      {"freqs", DType::kComplex64, {8}},
                      {"lazy", DType::kUnspecified, {}}};
  return manifest;
}

TEST(CheckOperations, NeverAveragesIntegersAndBools) {
  for (const Operation mean : {Operation::kMean, Operation::kMeanBySamples}) {
    EXPECT_THAT(
        CheckOperations({.operation = mean}, BatchNorm()),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("buffer 'bn.num_batches_tracked' is int64, which has no mean"),
                       HasSubstr("(the policy's own operation); buffer 'mask' is bool"),
                       Not(HasSubstr("freqs")), Not(HasSubstr("lazy")),
                       HasSubstr("Put a rule before it"))));
  }
}

TEST(CheckOperations, GoesByTheFirstRuleThatMatches) {
  SyncPolicy policy = {.rules = {{.pattern = "bn.*", .operation = Operation::kMean}}};
  EXPECT_THAT(CheckOperations(policy, BatchNorm()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'bn.num_batches_tracked' is int64, which has no mean (rules[0] "
                                 "'bn.*')")));
  policy.rules.insert(policy.rules.begin(),
                      {.pattern = "**.num_batches_tracked", .operation = Operation::kMax});
  LOCKSTEP_EXPECT_OK(CheckOperations(policy, BatchNorm()));
}

TEST(CheckOperations, DoesNotLookAtExcludedBuffers) {
  LOCKSTEP_EXPECT_OK(CheckOperations(
      {.ignore_list = {"**.num_batches_tracked", "mask"}, .operation = Operation::kMean},
      BatchNorm()));
  LOCKSTEP_EXPECT_OK(
      CheckOperations({.allow_list = {"bn.running_*"}, .operation = Operation::kMean}, BatchNorm()));
}

TEST(CheckOperations, HasNoOrderForComplexNumbers) {
  for (const Operation order : {Operation::kMin, Operation::kMax}) {
    EXPECT_THAT(CheckOperations({.operation = order}, BatchNorm()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("buffer 'freqs' is complex64, which has no")));
  }
}

TEST(CheckOperations, CountsWhatItDoesNotDescribe) {
  Manifest manifest;
  for (int i = 0; i < 8; ++i) manifest.buffers.push_back({std::string(1, 'a' + i), DType::kInt8, {}});
  EXPECT_THAT(CheckOperations({.operation = Operation::kMean}, manifest),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'e'"), Not(HasSubstr("'f'")), HasSubstr("and 3 more"))));
}

// A coordinator's jobs wait while patterns are matched.
TEST(CheckMatchWork, BoundsPatternsTimesNames) {
  Manifest manifest;
  for (int i = 0; i < 100'000; ++i) {
    manifest.buffers.push_back({absl::StrCat("layer", i, ".norm.running_mean"), DType::kFloat32, {}});
  }
  const auto with = [](int count, const std::string& text) {
    SyncPolicy policy;
    for (int i = 0; i < count; ++i) policy.rules.push_back({.pattern = absl::StrCat(text, i)});
    return policy;
  };
  const auto is_too_large = StatusIs(
      absl::StatusCode::kInvalidArgument,
      AllOf(HasSubstr("the names of the 100000 buffers have "),
            HasSubstr("at most 1000000000 is allowed"), HasSubstr("Use fewer or shorter")));
  LOCKSTEP_EXPECT_OK(CheckOperations(with(10, "**.running_mean"), manifest));
  EXPECT_THAT(CheckOperations(with(1000, "**.running_mean"), manifest), is_too_large);
  EXPECT_THAT(CheckPatternsMatch(with(1000, "**.running_mean"), manifest), is_too_large);
  // Names are looked up, and expressions may take long.
  LOCKSTEP_EXPECT_OK(CheckOperations(with(1000, "layer.running_mean"), manifest));
  LOCKSTEP_EXPECT_OK(CheckOperations(with(4, "**.norm.*"), manifest));
  EXPECT_THAT(CheckOperations(with(4, "re:.*norm.*"), manifest), is_too_large);
}

}  // namespace
}  // namespace lockstep
