#include "client/ctl/watch_command.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/ctl/options.h"
#include "client/ctl/progress.h"
#include "client/ctl/render.h"
#include "client/ctl/step_rates.h"
#include "client/ctl/terminal.h"
#include "client/ctl/watch_table.h"

namespace lockstep {
namespace {

constexpr int kUsualRows = 24;
// A line that is too long for the terminal is cut by it, so that each line is one row.
constexpr char kCutLines[] = "\x1b[?7l";
constexpr char kWrapLines[] = "\x1b[?7h";

// Redraws one table in place.
class LiveView {
 public:
  explicit LiveView(Color color) : color_(color) {}

  void Show(const v1::WatchJobResponse& state) {
    const absl::Time now = absl::Now();
    rates_.Look(state, now);
    // The cursor stands on a line of its own behind the frame.
    const int max_lines = TerminalRows().value_or(kUsualRows) - 1;
    std::string frame = RenderWatch(state, rates_, now, max_lines, color_);
    Print(absl::StrCat(kCutLines, RewindOver(frame_), frame, kWrapLines));
    frame_ = std::move(frame);
  }

 private:
  const Color color_;
  StepRates rates_;
  std::string frame_;
};

ExitCode WatchJob(Context& context, const std::string& name, bool once) {
  const absl::Duration timeout =
      context.timeout || once ? context.call().timeout : absl::InfiniteDuration();
  const bool is_live = !context.json && !once && CanSteerTerminal();
  LiveView view(context.color);
  std::string said;
  const absl::Status watched =
      context.client->WatchJob(name, timeout, [&](const v1::WatchJobResponse& state) {
        if (is_live) {
          view.Show(state);
          return true;
        }
        const std::string line = context.json
                                     ? RenderJson(state, JsonLayout::kOneLine)
                                     : absl::StrCat(WatchLine(state, context.color), "\n");
        if (line != said) Print(line);
        said = line;
        return !once;
      });
  if (watched.ok()) return ExitCode::kOk;
  const ExitCode code = Fail(watched);
  return absl::IsDeadlineExceeded(watched) ? ExitCode::kWaitTimedOut : code;
}

}  // namespace

void AddWatchCommand(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand(
      "watch", "on a terminal, a table that is kept up to date; else a line per change");
  auto job = std::make_shared<std::string>();
  auto once = std::make_shared<bool>(false);
  AddJob(command, job.get());
  command->add_flag("--once", *once, "print the present state and end");
  command->callback([=] { *chosen = [=] { return WatchJob(*context, *job, *once); }; });
  AddExample(command, "job watch mnist");
}

}  // namespace lockstep
