#include "client/ctl/progress.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/ctl/table.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

std::string Shorten(const std::string& name) {
  return absl::AsciiStrToLower(absl::StripPrefix(name, "STATE_"));
}

int Members(const v1::WatchJobResponse& state) {
  int members = 0;
  for (const v1::Worker& worker : state.workers()) members += worker.rank() >= 0 ? 1 : 0;
  return members;
}

}  // namespace

EntryProgress ProgressOf(const v1::WatchJobResponse& state, std::int64_t log_number) {
  if (state.job().applied_log_number() >= log_number) return {.is_done = true};
  if (state.job().state() != v1::Job::STATE_RUNNING) {
    return {.waiting = absl::StrCat("waiting for the job to run: ", state.job().detail())};
  }
  std::vector<std::string> missing;
  for (const v1::Worker& worker : state.workers()) {
    if (worker.rank() >= 0 && worker.applied_log_number() < log_number) {
      missing.push_back(worker.name());
    }
  }
  return {.waiting = absl::StrCat("waiting for ", missing.size(), " of ", Members(state),
                                  " workers: ", ListNames(missing))};
}

std::string WatchLine(const v1::WatchJobResponse& state, Color color) {
  const v1::Job& job = state.job();
  std::string line = absl::StrCat(
      Paint(StateName(job.state()), StyleOf(job.state()), color), "  epoch ", job.epoch(),
      "  step ", job.step(), "  policy ", job.policy().revision(), " (",
      Paint(StateName(job.policy().state()), StyleOf(job.policy().state()), color), ")  workers ",
      Members(state));
  for (const v1::Worker& worker : state.workers()) {
    const auto loss = worker.metrics().find("loss");
    if (worker.rank() < 0 || loss == worker.metrics().end()) continue;
    absl::StrAppendFormat(&line, "  loss %.4g", loss->second);
    break;
  }
  if (job.state() != v1::Job::STATE_RUNNING && !job.detail().empty()) {
    absl::StrAppend(&line, "  ", OneLine(job.detail()));
  }
  return line;
}

std::string StateName(v1::Job::State state) { return Shorten(v1::Job::State_Name(state)); }
std::string StateName(v1::Worker::State state) { return Shorten(v1::Worker::State_Name(state)); }
std::string StateName(v1::SyncPolicyRevision::State state) {
  return Shorten(v1::SyncPolicyRevision::State_Name(state));
}

Style StyleOf(v1::Job::State state) {
  return state == v1::Job::STATE_RUNNING ? Style::kGood : Style::kPending;
}

Style StyleOf(v1::Worker::State state) {
  switch (state) {
    case v1::Worker::STATE_READY:
    case v1::Worker::STATE_TRAINING:
      return Style::kGood;
    case v1::Worker::STATE_ATTENDING:
    case v1::Worker::STATE_PREPARING:
      return Style::kPending;
    case v1::Worker::STATE_SUSPECT:
      return Style::kBad;
    default:
      return Style::kPlain;
  }
}

Style StyleOf(v1::SyncPolicyRevision::State state) {
  return state == v1::SyncPolicyRevision::STATE_EFFECTIVE ? Style::kGood : Style::kPending;
}

}  // namespace lockstep
