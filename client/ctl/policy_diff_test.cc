#include "client/ctl/policy_diff.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Kind = FieldChange::Kind;

std::string Lines(const v1::SyncPolicy& before, const v1::SyncPolicy& after) {
  const std::string text = RenderDiff({.before = "a",
                                       .after = "b",
                                       .fields = DiffPolicies(before, after).value(),
                                       .buffers = std::vector<BufferChange>()});
  return text.substr(0, text.find("no buffer of the model"));
}

void AddRule(const std::string& pattern, v1::Operation operation, v1::SyncPolicy& policy) {
  v1::SyncRule& rule = *policy.add_rules();
  rule.set_pattern(pattern);
  rule.set_operation(operation);
}

TEST(DiffPolicies, FindsNoneInADefaultThatIsSpelledOut) {
  v1::SyncPolicy spelled_out;
  spelled_out.set_broadcast_buffers(true);
  spelled_out.set_operation(v1::OPERATION_BROADCAST);
  spelled_out.mutable_root();
  spelled_out.mutable_schedule()->set_every_forwards(1);
  spelled_out.set_broadcast_parameters_at_start(true);
  EXPECT_THAT(DiffPolicies({}, spelled_out).value(), IsEmpty());
  EXPECT_EQ(Lines({}, spelled_out), "a -> b\nno difference\n");
}

TEST(DiffPolicies, RefusesAPolicyThatIsNotKnown) {
  v1::SyncPolicy unknown;
  AddRule("a", static_cast<v1::Operation>(99), unknown);
  EXPECT_THAT(DiffPolicies(unknown, {}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DiffPolicies({}, unknown), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(DiffPolicies, NamesEachFieldWithItsValues) {
  v1::SyncPolicy after;
  after.set_broadcast_buffers(false);
  after.add_allow_list("a");
  after.add_ignore_list("b");
  after.set_operation(v1::OPERATION_MEAN);
  after.mutable_root()->set_rank(2);
  after.mutable_schedule()->set_at_start(false);
  after.mutable_schedule()->set_every_steps(100);
  after.mutable_schedule()->set_before_evaluation(true);
  after.mutable_schedule()->set_before_checkpoint(true);
  after.set_broadcast_parameters_at_start(false);
  after.set_broadcast_parameters_every_steps(7);
  after.set_check_parameters_every_steps(8);
  after.set_skip_unchanged(true);
  AddRule("**.count", v1::OPERATION_SUM, after);
  EXPECT_EQ(Lines({}, after), R"(a -> b
~ broadcast_buffers: true -> false
+ allow_list: a
+ ignore_list: b
~ operation: broadcast -> mean
~ root: the lowest rank -> rank 2
~ schedule.at_start: true -> false
~ schedule.every_forwards: 1 -> 0
~ schedule.every_steps: 0 -> 100
~ schedule.before_evaluation: false -> true
~ schedule.before_checkpoint: false -> true
~ broadcast_parameters_at_start: true -> false
~ broadcast_parameters_every_steps: 0 -> 7
~ check_parameters_every_steps: 0 -> 8
~ skip_unchanged: false -> true
+ rules[0]: **.count sum
)");
}

TEST(DiffPolicies, ARuleThatIsInsertedDoesNotChangeThoseBehind) {
  v1::SyncPolicy before;
  AddRule("a", v1::OPERATION_MEAN, before);
  AddRule("b", v1::OPERATION_MAX, before);
  v1::SyncPolicy after;
  AddRule("a", v1::OPERATION_MEAN, after);
  AddRule("c", v1::OPERATION_SUM, after);
  AddRule("b", v1::OPERATION_MAX, after);
  EXPECT_EQ(Lines(before, after), "a -> b\n+ rules[1]: c sum\n");
  EXPECT_EQ(Lines(after, before), "a -> b\n- rules[1]: c sum\n");
}

TEST(DiffPolicies, ARuleThatChangesIsRemovedAndAdded) {
  v1::SyncPolicy before;
  AddRule("a", v1::OPERATION_MEAN, before);
  v1::SyncPolicy after = before;
  after.mutable_rules(0)->mutable_schedule()->set_every_steps(5);
  EXPECT_EQ(Lines(before, after),
            "a -> b\n- rules[0]: a mean\n+ rules[0]: a mean at-start=on every-steps=5\n");
}

// The changes, carried out, make the one list of the other.
TEST(DiffPolicies, OfListsIsEnoughToRedoTheChange) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Prng prng(seed);
    v1::SyncPolicy before;
    v1::SyncPolicy after;
    for (v1::SyncPolicy* policy : {&before, &after}) {
      for (std::uint64_t i = prng.Below(8); i > 0; --i) {
        AddRule(absl::StrCat(prng.Below(4)), v1::OPERATION_MIN, *policy);
      }
    }
    std::vector<std::string> patterns;
    for (const v1::SyncRule& rule : before.rules()) patterns.push_back(rule.pattern());
    const std::vector<FieldChange> changes = DiffPolicies(before, after).value();
    const auto index = [](const FieldChange& change) { return std::stoul(change.field.substr(6)); };
    for (std::size_t i = changes.size(); i-- > 0;) {
      if (changes[i].kind == Kind::kRemoved) patterns.erase(patterns.begin() + index(changes[i]));
    }
    for (const FieldChange& change : changes) {
      if (change.kind != Kind::kAdded) continue;
      ASSERT_LE(index(change), patterns.size());
      patterns.insert(patterns.begin() + index(change), change.after.substr(0, 1));
    }
    std::vector<std::string> expected;
    for (const v1::SyncRule& rule : after.rules()) expected.push_back(rule.pattern());
    EXPECT_EQ(patterns, expected) << seed;
  }
}

v1::PreviewSyncPolicyResponse Preview(
    const std::vector<std::pair<std::string, v1::Operation>>& buffers) {
  v1::PreviewSyncPolicyResponse preview;
  for (const auto& [name, operation] : buffers) {
    v1::BufferPreview& buffer = *preview.add_buffers();
    buffer.set_name(name);
    buffer.set_selection(operation == v1::OPERATION_NONE
                             ? v1::BufferPreview::SELECTION_RANK_LOCAL
                             : v1::BufferPreview::SELECTION_SYNCED);
    buffer.set_operation(operation);
  }
  return preview;
}

TEST(DiffTreatments, NamesBuffersThatAreTreatedDifferently) {
  const auto before = Preview({{"a", v1::OPERATION_MEAN}, {"b", v1::OPERATION_MAX}});
  auto after = Preview({{"a", v1::OPERATION_MEAN}, {"b", v1::OPERATION_NONE},
                        {"new", v1::OPERATION_MAX}});
  after.mutable_buffers(0)->set_rule(4);
  EXPECT_THAT(DiffTreatments(before, after),
              ElementsAre(BufferChange{.name = "b",
                                       .before = "max, root the lowest rank; at start",
                                       .after = "rank-local"}));
}

PolicyDiff WithBuffers(int count) {
  PolicyDiff diff = {.before = "revision 1",
                     .after = "revision 2",
                     .fields = {{.kind = Kind::kAdded, .field = "allow_list", .after = "x"}}};
  diff.buffers.emplace();
  for (int i = 0; i < count; ++i) {
    diff.buffers->push_back({.name = absl::StrCat("b", i, "."), .before = "mean", .after = "sum"});
  }
  return diff;
}

TEST(RenderDiff, ShowsTwentyBuffersAndCountsTheOthers) {
  const std::string text = RenderDiff(WithBuffers(33));
  EXPECT_THAT(text, AllOf(HasSubstr("33 buffers are treated differently:\n  b0.: mean -> sum\n"),
                          HasSubstr("b19."), Not(HasSubstr("b20.")), HasSubstr("  and 13 more\n")));
  EXPECT_THAT(RenderDiff(WithBuffers(20)), AllOf(HasSubstr("b19."), Not(HasSubstr("more"))));
  EXPECT_THAT(RenderDiff(WithBuffers(1)), HasSubstr("1 buffer is treated differently"));
}

TEST(RenderDiff, SaysThatNoModelIsKnown) {
  PolicyDiff diff = WithBuffers(0);
  EXPECT_THAT(RenderDiff(diff), HasSubstr("no buffer of the model is treated differently"));
  diff.buffers.reset();
  EXPECT_THAT(RenderDiff(diff), HasSubstr("no worker has told the model yet"));
}

TEST(RenderDiffJson, HoldsAllFieldsAndAllBuffers) {
  PolicyDiff diff = WithBuffers(33);
  auto json = nlohmann::json::parse(RenderDiffJson(diff));
  EXPECT_EQ(json["before"], "revision 1");
  EXPECT_EQ(json["fields"][0], nlohmann::json::parse(
                                   R"({"field": "allow_list", "change": "added", "after": "x"})"));
  EXPECT_EQ(json["buffers"].size(), 33u);
  EXPECT_EQ(json["buffers"][32]["name"], "b32.");
  diff.buffers.reset();
  EXPECT_TRUE(nlohmann::json::parse(RenderDiffJson(diff))["buffers"].is_null());
}

}  // namespace
}  // namespace lockstep
