#include "client/ctl/events_command.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "client/ctl/events.h"
#include "client/ctl/options.h"

namespace lockstep {
namespace {

struct EventsFlags {
  std::string job;
  std::optional<std::int64_t> count;
};

ExitCode ShowEvents(Context& context, const EventsFlags& flags) {
  const auto show = [&](const JobEvent& event) {
    const absl::Time now = absl::Now();
    Print(context.json ? RenderEventJson(event, now) : RenderEvent(event, now, context.color));
  };
  std::optional<v1::WatchJobResponse> last;
  std::int64_t shown = 0;
  const absl::Status watched = context.client->WatchJob(
      flags.job, context.timeout.value_or(absl::InfiniteDuration()),
      [&](const v1::WatchJobResponse& state) {
        if (!last) show(FirstEvent(state));
        if (last) {
          for (const JobEvent& event : EventsBetween(*last, state)) {
            show(event);
            if (++shown == flags.count) return false;
          }
        }
        last = state;
        return true;
      });
  if (watched.ok()) return ExitCode::kOk;
  if (absl::IsNotFound(watched) && last) {
    show(DeletedEvent(*last));
    return ExitCode::kOk;
  }
  const ExitCode code = Fail(watched);
  return absl::IsDeadlineExceeded(watched) ? ExitCode::kWaitTimedOut : code;
}

}  // namespace

void AddEventsCommand(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand(
      "events", "print what happens in a job, a line each: time, kind, what");
  auto flags = std::make_shared<EventsFlags>();
  AddJob(command, &flags->job);
  command->add_option("--count", flags->count, "end after so many events")
      ->check(CLI::PositiveNumber);
  command->footer(
      "The first line, of the kind `now`, is the present state; it does not count. Ends when the "
      "job\nis deleted. The time is when this program saw it.");
  command->callback([=] { *chosen = [=] { return ShowEvents(*context, *flags); }; });
  AddExample(command, "events mnist --json --count 10 --timeout 1h");
}

}  // namespace lockstep
