// The script for bash, run by bash.
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/ctl/ctl_fixture.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Completion : public Lockstepctl {
 protected:
  // What bash offers for the words, as its line editor breaks them, the last of which is to
  // be completed; "FILES" if those of the file system.
  std::string Complete(const std::vector<std::string>& words,
                       const std::string& environment = "") {
    std::vector<std::string> quoted = {"client/ctl/lockstepctl"};
    for (const std::string& word : words) quoted.push_back(absl::StrCat("'", word, "'"));
    const std::string script = WriteFile(
        "complete.sh",
        absl::StrCat("set -u\n"
                     "complete() { [ \"$*\" = '-F _lockstepctl lockstepctl' ] || echo \"$*\"; }\n"
                     "compopt() { [ \"$*\" = '-o default' ] && echo FILES; }\n"
                     "source <(client/ctl/lockstepctl completion bash)\n"
                     "COMP_WORDS=(",
                     absl::StrJoin(quoted, " "), ")\nCOMP_CWORD=", words.size(),
                     "\n_lockstepctl\necho ${COMPREPLY[*]-}\n"));
    const std::string out = WriteFile("complete.out", "");
    const std::string command =
        absl::StrCat("LOCKSTEP_CONFIG=", NoConfig(), " LOCKSTEP_COORDINATOR=", server_->address(),
                     " ", environment, " bash ", script, " >", out, " 2>&1");
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::string text = ReadFile(out);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
};

TEST_F(Completion, OffersCommandsThenOptions) {
  EXPECT_EQ(Complete({"jo"}), "job");
  EXPECT_EQ(Complete({"c"}), "checkpoint context completion");
  EXPECT_EQ(Complete({"job", ""}), "list create status watch drain checkpoint delete");
  EXPECT_EQ(Complete({"--json", "--timeout", "5s", "job", "de"}), "delete");
  EXPECT_EQ(Complete({"job", "watch", "--o"}), "--once");
  EXPECT_EQ(Complete({"policy", "set", "mnist", "--no-at"}), "--no-at-start");
  // Global ones stand behind commands, too; a command's own is offered once.
  EXPECT_EQ(Complete({"job", "watch", "--co"}), "--context --coordinator --color");
  EXPECT_EQ(Complete({"context", "set", "--coo"}), "--coordinator");
  EXPECT_EQ(Complete({"dox"}), "");
  EXPECT_THAT(Complete({""}), AllOf(HasSubstr("events"), Not(HasSubstr("docs"))));
}

TEST_F(Completion, OffersTheNamesOfJobsAndWorkers) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  ASSERT_THAT(CreateJob("mlp"), IsOk());
  ASSERT_THAT(CreateJob("cifar"), IsOk());
  RawWorker worker(*membership_);
  worker.Join("mnist", "w0");
  EXPECT_EQ(Complete({"job", "watch", ""}), "cifar mlp mnist");
  EXPECT_EQ(Complete({"policy", "get", "m"}), "mlp mnist");
  EXPECT_EQ(Complete({"events", "--json", "ci"}), "cifar");
  EXPECT_EQ(Complete({"job", "drain", "mnist", ""}), "w0");
  EXPECT_EQ(Complete({"job", "watch", "mnist", ""}), "");
  EXPECT_EQ(Complete({"job", "create", ""}), "");
}

TEST_F(Completion, AsksTheCoordinatorThatTheLineNames) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  const std::vector<std::string> address = absl::StrSplit(server_->address(), ':');
  const std::string nobody = "LOCKSTEP_COORDINATOR=127.0.0.1:1";
  EXPECT_EQ(Complete({"job", "watch", ""}, nobody), "");
  EXPECT_EQ(Complete({"--coordinator", address[0], ":", address[1], "job", "watch", ""}, nobody),
            "mnist");
  EXPECT_EQ(
      Complete({"job", "watch", "--coordinator", "=", address[0], ":", address[1], ""}, nobody),
      "mnist");
}

TEST_F(Completion, OffersTheValuesOfOptions) {
  EXPECT_EQ(Complete({"--color", ""}), "auto always never");
  EXPECT_EQ(Complete({"job", "list", "--color", "=", "al"}), "always");
  EXPECT_EQ(Complete({"job", "list", "--color", "="}), "auto always never");
  EXPECT_EQ(Complete({"completion", ""}), "bash zsh");
  EXPECT_EQ(Complete({"--tls-key", ""}), "FILES");
  EXPECT_EQ(Complete({"checkpoint", "export", ""}), "FILES");
  EXPECT_EQ(Complete({"job", "create", "mnist", "--min-workers", ""}), "");
}

TEST_F(Completion, OffersContexts) {
  const std::string config = WriteFile("config.json", R"({"contexts": {"prod": {}, "qa": {}}})");
  const std::string environment = "LOCKSTEP_CONFIG=" + config;
  EXPECT_EQ(Complete({"--context", ""}, environment), "prod qa");
  EXPECT_EQ(Complete({"context", "use", "q"}, environment), "qa");
}

TEST_F(Completion, TellsShellsApart) {
  EXPECT_THAT(Run("completion bash").out, Not(HasSubstr("compdef")));
  EXPECT_THAT(Run("completion zsh").out,
              AllOf(HasSubstr("#compdef lockstepctl"), HasSubstr("'job drain')")));
  EXPECT_EQ(Run("completion fish").code, 2);
}

}  // namespace
}  // namespace lockstep
