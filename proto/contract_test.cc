// The form of the wire contract (lockstep/v1) and of the durable records: what
// protoc does not check. Reads the .proto files as text, since comments are not
// part of linked descriptors.

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What is wrong with one file, a line each.
struct Findings {
  std::vector<std::string> fields;    // whose comment does not start as it should
  std::vector<std::string> enums;     // whose zero is not _UNSPECIFIED
  std::vector<std::string> names;     // requests and responses that do not pair
  int fields_seen = 0;
  int enums_seen = 0;
  int rpcs_seen = 0;
};

bool SaysHowItIsUsed(absl::string_view comment) {
  for (const char* word : {"Required.", "Optional.", "Output only.", "Identifier.", "Immutable."}) {
    if (absl::StartsWith(comment, word)) return true;
  }
  return false;
}

// Whether the expression matches the whole statement; its groups go to `groups`.
bool Match(const std::string& statement, const std::regex& expression,
           const std::vector<std::string*>& groups) {
  std::smatch match;
  if (!std::regex_match(statement, match, expression)) return false;
  for (std::size_t i = 0; i < groups.size(); ++i) *groups[i] = match[i + 1];
  return true;
}

// Members of a oneof need no such word: the oneof says how they are used.
Findings Check(const std::string& text) {
  static const std::regex kBlock("(service|message|enum|oneof) (\\w+) \\{.*");
  static const std::regex kField("(?:repeated |optional )?[\\w.]+(?:<.*>)? (\\w+) = \\d+;.*");
  static const std::regex kValue("(\\w+) = (\\d+);.*");
  static const std::regex kRpc("rpc (\\w+)\\((?:stream )?(\\w+)\\) ?returns \\((?:stream )?(\\w+)\\).*");
  Findings findings;
  std::vector<std::string> blocks;  // kinds of the open ones, outermost first
  std::string comment;              // the lines right before this one
  std::set<std::string> messages;
  std::set<std::string> paired;
  std::string statement;
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (absl::StartsWith(line, "//")) {
      absl::StrAppend(&comment, comment.empty() ? "" : " ",
                      absl::StripAsciiWhitespace(line.substr(2)));
      continue;
    }
    // A statement may go over several lines.
    absl::StrAppend(&statement, statement.empty() ? "" : " ", line);
    if (!line.empty() && !absl::StrContains(line, ';') && !absl::StrContains(line, '{') &&
        !absl::StrContains(line, '}')) {
      continue;
    }
    std::string kind, name, number, request, response;
    const std::string inside = blocks.empty() ? "" : blocks.back();
    if (Match(statement, kBlock, {&kind, &name})) {
      if (kind == "message") messages.insert(name);
      if (!absl::StrContains(statement, '}')) blocks.push_back(kind);
    } else if (absl::StartsWith(statement, "}")) {
      blocks.pop_back();
    } else if (inside == "message" && Match(statement, kField, {&name})) {
      ++findings.fields_seen;
      if (!SaysHowItIsUsed(comment)) findings.fields.push_back(name);
    } else if (inside == "enum" && Match(statement, kValue, {&name, &number})) {
      if (number == "0") {
        ++findings.enums_seen;
        if (!absl::EndsWith(name, "_UNSPECIFIED")) findings.enums.push_back(name);
      }
    } else if (inside == "service" &&
               Match(statement, kRpc, {&name, &request, &response})) {
      ++findings.rpcs_seen;
      if (request != name + "Request" || response != name + "Response") {
        findings.names.push_back(name);
      }
      paired.insert({request, response});
    }
    comment.clear();
    statement.clear();
  }
  for (const std::string& message : messages) {
    const bool is_of_rpc =
        absl::EndsWith(message, "Request") || absl::EndsWith(message, "Response");
    if (is_of_rpc && paired.count(message) == 0) findings.names.push_back(message);
  }
  return findings;
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Contract, WireFilesKeepTheForm) {
  int fields = 0, enums = 0, rpcs = 0;
  for (const char* name : {"job", "membership", "policy"}) {
    const Findings findings = Check(Read(absl::StrCat("proto/lockstep/v1/", name, ".proto")));
    EXPECT_THAT(findings.fields, IsEmpty()) << name;
    EXPECT_THAT(findings.enums, IsEmpty()) << name;
    EXPECT_THAT(findings.names, IsEmpty()) << name;
    fields += findings.fields_seen;
    enums += findings.enums_seen;
    rpcs += findings.rpcs_seen;
  }
  // So that a scan that sees nothing does not pass.
  EXPECT_GE(fields, 100);
  EXPECT_GE(enums, 4);
  EXPECT_GE(rpcs, 12);
}

TEST(Contract, RecordsKeepTheFormOfEnums) {
  EXPECT_THAT(Check(Read("proto/lockstep/storage/v1/records.proto")).enums, IsEmpty());
}

TEST(ContractScan, FindsEachKindOfSlip) {
  const Findings findings = Check(R"(
    service S {
      // Right.
      rpc Get(GetRequest) returns (GetResponse);
      rpc Watch(WatchRequest)
          returns (stream Update);
    }
    message GetRequest {}
    message GetResponse {
      // Output only. Good.
      optional string good = 1;

      // Nice to have.
      map<string, double> chatty = 2;
      repeated x.Y silent = 3;
      oneof either { string left = 4; }
      oneof other {
        string right = 5;
      }
      enum State {
        STATE_NONE = 0;
        STATE_ON = 1;
      }
      // Required.
      // Two lines.
      int32 after = 6;  // and more
    }
    message WatchRequest {}
    message LostResponse {}
  )");
  EXPECT_THAT(findings.fields, ElementsAre("chatty", "silent"));
  EXPECT_THAT(findings.enums, ElementsAre("STATE_NONE"));
  EXPECT_THAT(findings.names, ElementsAre("Watch", "LostResponse"));
  EXPECT_EQ(findings.fields_seen, 4);
  EXPECT_EQ(findings.rpcs_seen, 2);
}

}  // namespace
}  // namespace lockstep
