#include "client/ctl/policy_text.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ParsePolicy, TellsJsonFromTextprotoByTheFirstCharacter) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncPolicy json,
                                ParsePolicy(" \n {\"ignore_list\": [\"bn1.*\"]}", "p"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncPolicy text,
                                ParsePolicy("# why\nignore_list: 'bn1.*'\n", "p"));
  EXPECT_TRUE(MessageDifferencer::Equals(json, text));
  EXPECT_EQ(json.ignore_list(0), "bn1.*");
}

TEST(ParsePolicy, SaysWhereTextprotoIsWrong) {
  EXPECT_THAT(ParsePolicy("skip_unchanged: true\n  ignore: 'x'\n", "p.textproto"),
              StatusIs(kInvalid, AllOf(StartsWith("p.textproto:2:"), HasSubstr("\"ignore\""))));
  EXPECT_THAT(ParsePolicy("operation: OPERATION_MEDIAN", "p"),
              StatusIs(kInvalid, AllOf(StartsWith("p:1:"), HasSubstr("OPERATION_MEDIAN"))));
  EXPECT_THAT(ParsePolicy("schedule {", "p"), StatusIs(kInvalid, StartsWith("p:1:")));
}

TEST(ParsePolicy, SaysWhereJsonIsWrong) {
  EXPECT_THAT(ParsePolicy("{\n \"rules\" [\n", "p.json"),
              StatusIs(kInvalid, AllOf(StartsWith("p.json:2:10: "), HasSubstr("expected ':'"))));
  EXPECT_THAT(ParsePolicy("{", "p"), StatusIs(kInvalid, StartsWith("p:1:2: ")));
  EXPECT_THAT(ParsePolicy("{\"ignore\": [\"x\"]}", "p.json"),
              StatusIs(kInvalid, AllOf(StartsWith("p.json is not a SyncPolicy in JSON: "),
                                       HasSubstr("ignore"))));
}

TEST(ParsePolicy, RefusesWhatTheCoordinatorWouldRefuseAnyway) {
  EXPECT_THAT(ParsePolicy("rules { pattern: 'a***' }", "p"),
              StatusIs(kInvalid, StartsWith("p: rules[0].pattern: ")));
  EXPECT_THAT(ParsePolicy("{\"schedule\": {\"every_steps\": -3}}", "p"),
              StatusIs(kInvalid, HasSubstr("every_steps: is -3")));
}

v1::SyncPolicyRevision Revision() {
  v1::SyncPolicyRevision revision;
  revision.set_revision(7);
  v1::SyncPolicy& policy = *revision.mutable_policy();
  policy.set_broadcast_buffers(false);
  policy.add_allow_list("größe.\"*\"");
  policy.mutable_root();
  policy.mutable_schedule()->set_at_start(false);
  v1::SyncRule& rule = *policy.add_rules();
  rule.set_pattern("re:\\w+");
  rule.set_operation(v1::OPERATION_MEAN_BY_SAMPLES);
  rule.mutable_root()->set_worker("w1");
  return revision;
}

TEST(PolicyText, IsReadAsTheSamePolicy) {
  const std::string text = PolicyText("mnist", Revision());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(v1::SyncPolicy read, ParsePolicy(text, "p"));
  // An empty root says nothing and is left out.
  read.mutable_root();
  EXPECT_TRUE(MessageDifferencer::Equals(read, Revision().policy())) << text;
  EXPECT_THAT(text, AllOf(StartsWith("# Sync policy of job mnist, revision 7."),
                          HasSubstr("größe"), Not(HasSubstr("\nroot {"))));
}

TEST(PolicyText, ExplainsEachFieldAndOperation) {
  const std::string text = PolicyText("mnist", {});
  for (const auto* message :
       {v1::SyncPolicy::descriptor(), v1::Schedule::descriptor(), v1::Root::descriptor()}) {
    for (int i = 0; i < message->field_count(); ++i) {
      EXPECT_THAT(text, HasSubstr(message->field(i)->name()));
    }
  }
  for (int i = 1; i < v1::Operation_descriptor()->value_count(); ++i) {
    EXPECT_THAT(text, HasSubstr(v1::Operation_descriptor()->value(i)->name()));
  }
}

TEST(IsEmptied, IgnoresSpaceAndComments) {
  EXPECT_TRUE(IsEmptied(""));
  EXPECT_TRUE(IsEmptied("# a\n\n  # b\n \t\r\n"));
  EXPECT_FALSE(IsEmptied("# a\nskip_unchanged: true\n"));
}

}  // namespace
}  // namespace lockstep
