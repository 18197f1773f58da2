// lockstepctl context ..., and what other commands take from contexts.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/ctl/ctl_fixture.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class ContextCommands : public Lockstepctl {
 protected:
  ContextCommands() { std::filesystem::remove_all(folder_); }

  // Without what the fixture says by LOCKSTEP_COORDINATOR, but for `environment`.
  Outcome RunWith(const std::string& arguments, const std::string& environment = "") {
    return Run(arguments, "", absl::StrCat("LOCKSTEP_COORDINATOR= LOCKSTEP_CONFIG=", path_, " ",
                                           environment));
  }
  void WriteConfig(const std::string& text) {
    std::filesystem::create_directories(folder_);
    std::ofstream(path_) << text;
  }

  // Nothing listens on either port: each is privileged and unassigned.
  const std::string nobody_ = "127.0.0.1:1";
  const std::string folder_ = absl::StrCat(testing::TempDir(), "/contexts", getpid());
  const std::string path_ = folder_ + "/config.json";
};

TEST_F(ContextCommands, MakeListShowUseAndDelete) {
  EXPECT_EQ(RunWith("context list").out, "  NAME  COORDINATOR  TLS  TOKEN\n");
  EXPECT_EQ(RunWith("context set here --coordinator " + server_->address()).out,
            absl::StrCat("context here is in ", path_, "\n"));
  EXPECT_EQ(RunWith("context set prod --coordinator h:1 --token-file t --tls-key /k").code, 0);
  EXPECT_EQ(RunWith("context use here").out, "context here is the current one\n");
  const Outcome list = RunWith("context list");
  EXPECT_THAT(list.out, AllOf(HasSubstr("\n*  here  "), HasSubstr("\n   prod  h:1")));
  EXPECT_THAT(RunWith("--context prod context list").out, HasSubstr("\n*  prod  "));
  const auto json = nlohmann::json::parse(RunWith("context show prod --json").out);
  EXPECT_EQ(json["coordinator"], "h:1");
  EXPECT_EQ(json["tls_key"], "/k");
  // Given from the working directory, whatever it is later.
  EXPECT_EQ(json["token_file"], std::filesystem::absolute("t").string());
  EXPECT_THAT(RunWith("context show").out, HasSubstr(server_->address()));
  EXPECT_EQ(RunWith("context set prod --token-file ''").code, 0);
  EXPECT_EQ(nlohmann::json::parse(RunWith("context show prod --json").out)["token_file"], "");
  EXPECT_EQ(RunWith("context delete here").out,
            "deleted context here; there is no current one now\n");
  EXPECT_EQ(RunWith("context delete prod --json").out, "{}\n");
  const auto left = nlohmann::json::parse(RunWith("context list --json").out);
  EXPECT_EQ(left["contexts"].size(), 0u);
  EXPECT_EQ(left["current"], "");
}

TEST_F(ContextCommands, TellOthersWhereTheCoordinatorIs) {
  ASSERT_EQ(RunWith("context set here --coordinator " + server_->address()).code, 0);
  ASSERT_EQ(RunWith("context set nobody --coordinator " + nobody_).code, 0);
  ASSERT_EQ(RunWith("context use here").code, 0);
  EXPECT_EQ(RunWith("job list").code, 0);
  // Flag before environment before context, for the context and for the address.
  EXPECT_EQ(RunWith("job list", "LOCKSTEP_CONTEXT=nobody").code, 3);
  EXPECT_EQ(RunWith("job list --context here", "LOCKSTEP_CONTEXT=nobody").code, 0);
  EXPECT_EQ(RunWith("job list", "LOCKSTEP_COORDINATOR=" + nobody_).code, 3);
  EXPECT_EQ(RunWith("job list --coordinator " + server_->address(),
                    "LOCKSTEP_COORDINATOR=" + nobody_)
                .code,
            0);
}

TEST_F(ContextCommands, DoNotSaveWhatIsInTheEnvironmentOrADefault) {
  ASSERT_EQ(RunWith("context set a --token-file /t", "LOCKSTEP_COORDINATOR=h:1").code, 0);
  EXPECT_EQ(ReadFile(path_), "{\n  \"contexts\": {\n    \"a\": {\n      \"token_file\": \"/t\"\n"
                             "    }\n  }\n}\n");
}

TEST_F(ContextCommands, ChangeNothingWhereSomethingIsWrong) {
  const std::string text = R"({"current": "gone", "contexts": {"a": {"coordinator": "h:1"}}})";
  WriteConfig(text);
  for (const std::string wrong : {"context use b", "context delete b", "context set a",
                                  "context set 'a b' --coordinator h:2", "context show b",
                                  "context show", "context use", "job list",
                                  "job list --context b"}) {
    EXPECT_EQ(RunWith(wrong).code, 2) << wrong;
  }
  EXPECT_EQ(RunWith("context use b").err,
            absl::StrCat("lockstepctl: ", path_,
                         ": contexts: there is no 'b'; there are: a\n"));
  EXPECT_EQ(ReadFile(path_), text);
  // A current one that is gone can be mended.
  EXPECT_EQ(RunWith("context use a").code, 0);
}

TEST_F(ContextCommands, NameFileAndKeyOfWhatIsWrongInTheFile) {
  WriteConfig(R"({"contexts": {"a": {"cordinator": "h:1"}}})");
  for (const std::string command : {"job list", "context list", "context set a --coordinator h:2",
                                    "--context a events mnist"}) {
    const Outcome refused = RunWith(command);
    EXPECT_EQ(refused.code, 2) << command;
    EXPECT_THAT(refused.err, StartsWith(absl::StrCat("lockstepctl: ", path_,
                                                     ": contexts.a.cordinator: unknown key")));
  }
  EXPECT_EQ(ReadFile(path_), R"({"contexts": {"a": {"cordinator": "h:1"}}})");
  WriteConfig("{\"contexts\": ");
  EXPECT_THAT(RunWith("job list").err, HasSubstr(path_ + ":1:14: "));
  // What calls no coordinator needs no context.
  EXPECT_EQ(RunWith("checkpoint list " + testing::TempDir()).code, 0);
  EXPECT_EQ(RunWith("completion bash").code, 0);
}

}  // namespace
}  // namespace lockstep
