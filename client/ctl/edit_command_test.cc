// policy edit, with small shell scripts as the editor.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/ctl_fixture.h"
#include "client/ctl/pseudo_terminal.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr char kAppend[] = R"(echo 'skip_unchanged: true' >>"$1")";

class EditCommand : public Lockstepctl {
 protected:
  EditCommand() {
    std::filesystem::create_directories(scratch_);
    for (const std::string& path : KeptFiles()) std::filesystem::remove(path);
    EXPECT_THAT(CreateJob("mnist"), IsOk());
  }

  // `script` edits the file "$1".
  Outcome Edit(const std::string& script, const std::string& flags,
               const std::string& input = "/dev/null") {
    const std::string editor = WriteFile("editor", absl::StrCat(script, "\n"));
    return Run(absl::StrCat("policy edit mnist ", flags, " <", input), /*coordinator=*/"",
               absl::StrCat("VISUAL= EDITOR='sh ", editor, "' TMPDIR='", scratch_, "'"));
  }
  std::string Revision() {
    return nlohmann::json::parse(Run("policy get mnist --json").out)["revision"];
  }
  std::vector<std::string> KeptFiles() {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_)) {
      paths.push_back(entry.path());
    }
    return paths;
  }

  // Folders may have such names.
  const std::string scratch_ = absl::StrCat(testing::TempDir(), "/scratch folder", getpid());
};

TEST_F(EditCommand, ShowsTheDifferenceAndSendsTheText) {
  const Outcome edited = Edit(kAppend, "--yes --reason drift --author bob");
  EXPECT_EQ(edited.code, 0) << edited.err;
  EXPECT_EQ(edited.out, "revision 2 is pending\n");
  EXPECT_THAT(edited.err, AllOf(HasSubstr("revision 1 -> the edited policy\n"),
                                HasSubstr("~ skip_unchanged: false -> true\n"),
                                HasSubstr("buffers were not compared")));
  const auto revision = nlohmann::json::parse(Run("policy get mnist --json").out);
  EXPECT_EQ(revision["policy"]["skip_unchanged"], true);
  EXPECT_EQ(revision["reason"], "drift");
  EXPECT_EQ(revision["author"], "bob");
  EXPECT_THAT(KeptFiles(), IsEmpty());
}

TEST_F(EditCommand, ShowsThePolicyUnderItsExplanation) {
  const std::string seen = WriteFile("seen", "");
  Edit(absl::StrCat("cp \"$1\" ", seen), "--yes");
  EXPECT_EQ(ReadFile(seen), Run("policy get mnist --textproto").out);
  EXPECT_THAT(ReadFile(seen), AllOf(HasSubstr("# Operations:"), HasSubstr("every_forwards: 1\n")));
}

TEST_F(EditCommand, TellsHowManyBuffersAreTreatedDifferently) {
  RawWorker worker(*membership_);
  worker.Join("mnist", "w0");
  EXPECT_THAT(Edit(R"(echo "ignore_list: 'bn1.*'" >>"$1")", "--yes").err,
              HasSubstr("1 buffer is treated differently:\n  bn1.running_mean: broadcast"));
}

TEST_F(EditCommand, DoesNothingWithTextThatIsUnchangedOrEmptiedOrMeansTheSame) {
  // Not the default policy, which emptied text would mean.
  ASSERT_EQ(Run("policy set mnist --ignore own").code, 0);
  for (const char* script : {"true", R"(: >"$1")", R"(echo '# nothing' >"$1")",
                             R"(echo '# only a comment' >>"$1")"}) {
    const Outcome edited = Edit(script, "--yes");
    EXPECT_EQ(edited.code, 0) << script << edited.err;
    EXPECT_EQ(edited.out, "nothing was changed\n") << script;
  }
  EXPECT_EQ(Revision(), "2");
  EXPECT_THAT(KeptFiles(), IsEmpty());
}

TEST_F(EditCommand, FailsWithoutATerminalAndKeepsTextThatIsWrong) {
  const Outcome edited = Edit(R"(echo 'ignore: true' >>"$1")", "--yes");
  EXPECT_EQ(edited.code, 1);
  ASSERT_THAT(KeptFiles(), SizeIs(1));
  EXPECT_THAT(edited.err, AllOf(HasSubstr("INVALID_ARGUMENT: " + KeptFiles()[0] + ":"),
                                HasSubstr("no field named \"ignore\""),
                                HasSubstr("your text is in " + KeptFiles()[0])));
  EXPECT_THAT(ReadFile(KeptFiles()[0]), HasSubstr("ignore: true"));
  EXPECT_EQ(Revision(), "1");
}

TEST_F(EditCommand, FailsWithWhatTheCoordinatorRefuses) {
  RawWorker worker(*membership_);
  worker.Join("mnist", "w0");
  const std::string unmatched = R"(echo "ignore_list: 'bn7.*'" >>"$1")";
  const Outcome edited = Edit(unmatched, "--yes");
  EXPECT_EQ(edited.code, 1);
  EXPECT_THAT(edited.err, AllOf(HasSubstr("bn7.*"), Not(HasSubstr("->"))));
  EXPECT_THAT(KeptFiles(), SizeIs(1));
  EXPECT_EQ(Edit(unmatched, "--yes --allow-unmatched").out, "revision 2 is pending\n");
}

TEST_F(EditCommand, NeedsATerminalToConfirmUnlessToldOtherwise) {
  const Outcome edited = Edit("touch \"$1\".opened", "");
  EXPECT_EQ(edited.code, 2);
  EXPECT_THAT(edited.err, HasSubstr("--yes"));
  EXPECT_THAT(KeptFiles(), IsEmpty());
}

TEST_F(EditCommand, AsksBeforeItSends) {
  const Outcome refused = Edit(kAppend, "", PseudoTerminal("maybe\nno\n").path());
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("Change the policy of job mnist? [y/N]"));
  EXPECT_THAT(KeptFiles(), SizeIs(1));
  EXPECT_EQ(Revision(), "1");
  EXPECT_EQ(Edit(kAppend, "", PseudoTerminal("\n").path()).code, 1);
  const PseudoTerminal terminal("y\n");
  EXPECT_EQ(Edit(kAppend, "", terminal.path()).out, "revision 2 is pending\n");
}

TEST_F(EditCommand, OffersToEditAgainWithTheTextAsItWasLeft) {
  // The first time it spoils the text, the second time it mends it.
  const std::string script = R"(if grep -q '^ignore:' "$1"
then sed -i 's/^ignore: .*/root { rank: 0 }/' "$1"
else echo 'ignore: true' >>"$1"
fi)";
  const PseudoTerminal terminal("\ny\n");
  const Outcome edited = Edit(script, "", terminal.path());
  EXPECT_EQ(edited.code, 0) << edited.err;
  EXPECT_THAT(edited.err, AllOf(HasSubstr("no field named"), HasSubstr("Edit again? [Y/n]")));
  EXPECT_THAT(Run("policy get mnist").out, HasSubstr("root:        rank 0"));
  const PseudoTerminal no("n\n");
  EXPECT_EQ(Edit(script, "", no.path()).code, 1);
  EXPECT_THAT(KeptFiles(), SizeIs(1));
}

TEST_F(EditCommand, KeepsTheTextIfSomebodyElseWasFaster) {
  const std::string other = absl::StrCat("client/ctl/lockstepctl policy set mnist --ignore other\n",
                                         kAppend);
  const Outcome edited = Edit(other, "--yes");
  EXPECT_EQ(edited.code, 1);
  ASSERT_THAT(KeptFiles(), SizeIs(1));
  EXPECT_THAT(edited.err, AllOf(HasSubstr("ABORTED"), HasSubstr("policy diff mnist"),
                                HasSubstr("policy set mnist --from " + KeptFiles()[0])));
  EXPECT_EQ(Revision(), "2");
  EXPECT_EQ(Run(absl::StrCat("policy set mnist --from '", KeptFiles()[0], "'")).code, 0);
  EXPECT_THAT(Run("policy diff mnist").out,
              AllOf(HasSubstr("- ignore_list: other\n"), HasSubstr("~ skip_unchanged")));
}

TEST_F(EditCommand, SaysThatTheEditorFailed) {
  const Outcome edited = Edit("exit 3", "--yes");
  EXPECT_EQ(edited.code, 1);
  EXPECT_THAT(edited.err, AllOf(HasSubstr("the editor 'sh "), HasSubstr("ended with 3")));
  EXPECT_EQ(Revision(), "1");
}

}  // namespace
}  // namespace lockstep
