// What holds for all commands alike. What each does: lockstepctl_test and its like.
#include "client/ctl/app.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/ctl/command_tree.h"
#include "client/ctl/markdown.h"
#include "client/ctl/options.h"
#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// What stands behind "lockstepctl " in the examples of a command's help.
std::vector<std::string> ExamplesOf(const CLI::App& command) {
  std::vector<std::string> examples;
  const std::string footer = command.get_footer();
  for (absl::string_view line : absl::StrSplit(footer, '\n')) {
    if (absl::ConsumePrefix(&line, kExampleStart)) examples.emplace_back(line);
  }
  return examples;
}

// The command that the arguments choose, as "job watch".
std::string ChosenBy(const std::string& arguments) {
  CommandLine line;
  CLI::App& app = line.app();
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& e) {
    return absl::StrCat("none: ", e.what());
  }
  std::vector<std::string> names;
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    names.push_back(at->get_name());
  }
  return absl::StrJoin(names, " ");
}

TEST(Commands, HaveAnExampleEachThatIsAsTheyAreCalled) {
  CommandLine line;
  int commands = 0;
  for (const VisibleCommand& command : VisibleCommands(line.app())) {
    if (!command.commands.empty()) continue;
    ++commands;
    const std::vector<std::string> examples = ExamplesOf(*command.app);
    EXPECT_THAT(examples, Not(IsEmpty())) << command.path;
    for (const std::string& example : examples) EXPECT_EQ(ChosenBy(example), command.path);
  }
  EXPECT_GT(commands, 20);
}

TEST(Commands, SayWhatTheyAndTheirOptionsAreFor) {
  CommandLine line;
  for (const VisibleCommand& command : VisibleCommands(line.app())) {
    EXPECT_NE(command.app->get_description(), "") << command.path;
    for (const auto& options : {command.arguments, command.options}) {
      for (const CLI::Option* option : options) {
        EXPECT_NE(option->get_description(), "") << command.path << " " << option->get_name();
      }
    }
  }
}

TEST(Commands, StandInTheDescriptionOfTheGroupTheyAreIn) {
  CommandLine line;
  for (const VisibleCommand& command : VisibleCommands(line.app())) {
    if (command.path.empty() || command.commands.empty()) continue;
    EXPECT_THAT(command.app->get_description(), HasSubstr(absl::StrJoin(command.commands, ", ")))
        << command.path;
  }
}

TEST(Help, StatesTheExitCodesOnceAndTheCommands) {
  CommandLine line;
  const std::string help = line.app().help();
  EXPECT_THAT(help, AllOf(HasSubstr("Exit codes: 0: done; 1: refused or failed; 2: wrong usage"),
                          HasSubstr("4: a wait timed out"), HasSubstr("events")));
  EXPECT_THAT(help, AllOf(Not(HasSubstr("\n  docs ")), Not(HasSubstr("\n  complete "))));
  const CLI::App* job = line.app().get_subcommand("job");
  EXPECT_THAT(job->get_subcommand("watch")->help(), Not(HasSubstr("Exit codes")));
}

TEST(Docs, AreWhatTheProgramSays) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string docs, ReadFile("docs/cli.md"));
  EXPECT_TRUE(docs == MarkdownOf(CommandLine().app()))
      << "docs/cli.md is not what the program says. Rewrite it:\n"
         "  bazel build //client/ctl:lockstepctl\n"
         "  bazel-bin/client/ctl/lockstepctl docs > docs/cli.md";
}

TEST(Docs, TellWhatIsKnownOfAnOption) {
  bool flag = false;
  CLI::App app("Does things.", "tool");
  app.add_option("--many,-m", "how many")->default_str("3")->envname("MANY")->type_name("N");
  CLI::App* command = app.add_subcommand("go", "go on");
  CLI::Option* b = command->add_flag("--bb", flag, "the b_");
  CLI::Option* a = command->add_flag("--aa,!--no-aa", flag, "the a")->group("Letters");
  command->add_option("where", "a place")->required()->excludes(b)->excludes(a);
  command->add_option("--how", "a way")->check(CLI::IsMember(std::vector<std::string>{"x", "y"}));
  command->add_flag("--secret", flag, "s")->group("");
  app.add_subcommand("hidden", "h")->group("");
  EXPECT_THAT(MarkdownOf(app),
              HasSubstr("# tool\n\nDoes things.\n\n```\ntool COMMAND [OPTIONS]\n```\n\nOptions:\n\n"
                        "- `--many`, `-m N`: how many (default `3`; environment `MANY`)\n\n"
                        "## tool go\n\ngo on\n\n```\ntool go where [OPTIONS]\n```\n\n"
                        "- `where`: a place (required; not with `--aa`, `--bb`)\n\n"
                        "Options:\n\n- `--bb`: the b\\_ (not with `where`)\n- `--how x|y`: a way\n\n"
                        "Letters:\n\n- `--aa`, `--no-aa`: the a (not with `where`)\n"));
  EXPECT_THAT(MarkdownOf(app), AllOf(Not(HasSubstr("hidden")), Not(HasSubstr("secret"))));
}

TEST(VisibleCommands, ComeWithWhatIsAboveAndBelow) {
  CommandLine line;
  const std::vector<VisibleCommand> commands = VisibleCommands(line.app());
  EXPECT_EQ(commands.front().path, "");
  std::set<std::string> paths;
  for (const VisibleCommand& command : commands) {
    EXPECT_TRUE(paths.insert(command.path).second) << command.path;
    if (command.path != "job drain") continue;
    EXPECT_THAT(command.arguments, SizeIs(2));
    EXPECT_THAT(command.parents,
                ElementsAre(&line.app(), line.app().get_subcommand("job")));
  }
  EXPECT_EQ(paths.count("job drain"), 1u);
  EXPECT_EQ(paths.count("complete jobs"), 0u);
}

TEST(ChoicesOf, AreThoseOfAnOptionThatHasSome) {
  CommandLine line;
  EXPECT_THAT(ChoicesOf(*line.app().get_option("--color")),
              ElementsAre("auto", "always", "never"));
  EXPECT_THAT(ChoicesOf(*line.app().get_option("--coordinator")), IsEmpty());
  EXPECT_FALSE(TakesValue(*line.app().get_option("--json")));
  EXPECT_TRUE(TakesValue(*line.app().get_option("--timeout")));
}

}  // namespace
}  // namespace lockstep
