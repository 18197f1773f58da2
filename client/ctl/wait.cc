#include "client/ctl/wait.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/ctl/progress.h"

namespace lockstep {

ExitCode AwaitEntry(Context& context, const std::string& job, std::int64_t log_number) {
  std::string said;
  const absl::Status watched =
      context.client->WatchJob(job, context.wait(), [&](const v1::WatchJobResponse& state) {
        const EntryProgress progress = ProgressOf(state, log_number);
        if (progress.is_done) return false;
        if (progress.waiting != said) std::fprintf(stderr, "%s\n", progress.waiting.c_str());
        said = progress.waiting;
        return true;
      });
  if (watched.ok()) return ExitCode::kOk;
  if (!absl::IsDeadlineExceeded(watched)) return Fail(watched);
  Fail(absl::DeadlineExceededError(absl::StrCat(
      "entry ", log_number, " of job '", job, "' did not take effect on all workers within ",
      absl::FormatDuration(context.wait()), "; it stays in the log and may still do",
      said.empty() ? "" : absl::StrCat(" (", said, ")"))));
  return ExitCode::kWaitTimedOut;
}

ExitCode AwaitAbsence(Context& context, const std::string& job, const std::string& worker) {
  std::string said;
  const absl::Status watched =
      context.client->WatchJob(job, context.wait(), [&](const v1::WatchJobResponse& state) {
        bool is_there = false;
        for (const v1::Worker& one : state.workers()) {
          is_there = is_there || one.name() == worker;
        }
        if (is_there && state.job().detail() != said) Say(state.job().detail() + "\n");
        said = state.job().detail();
        return is_there;
      });
  if (watched.ok()) return ExitCode::kOk;
  if (!absl::IsDeadlineExceeded(watched)) return Fail(watched);
  Fail(absl::DeadlineExceededError(absl::StrCat(
      "worker '", worker, "' of job '", job, "' was not drained within ",
      absl::FormatDuration(context.wait()), "; it may still be (", said, ")")));
  return ExitCode::kWaitTimedOut;
}

}  // namespace lockstep
