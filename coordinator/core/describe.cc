#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "coordinator/core/state.h"

namespace lockstep {
namespace {

std::string Workers(std::size_t count) {
  return absl::StrCat(count, count == 1 ? " worker" : " workers");
}

std::string DescribeWaiting(const JobState& job, const std::vector<std::string>& attending) {
  const auto count = static_cast<int>(attending.size());
  const int min = job.spec.min_workers;
  if (!job.awaited.empty()) {
    return absl::StrCat(Workers(attending.size()), count == 1 ? " attends" : " attend",
                        attending.empty() ? "" : absl::StrCat(" (", ListNames(attending), ")"),
                        "; waits for ", ListNames(job.awaited),
                        job.awaited.size() == 1 ? ", which has" : ", which have",
                        " parts of the job's state that may be nowhere else");
  }
  if (count >= min && job.fruitless > 0 && job.retry_at) {
    return absl::StrCat(Workers(attending.size()), " attend (", ListNames(attending),
                        "), enough for an epoch; waits a moment, since ", job.fruitless,
                        job.fruitless == 1 ? " epoch" : " epochs in a row",
                        " ended before a step was taken");
  }
  if (count >= min && !job.window_end) {
    return absl::StrCat(Workers(attending.size()), " attend (", ListNames(attending),
                        "), enough for an epoch");
  }
  if (count >= min) {
    return absl::StrCat(Workers(attending.size()), " attend (", ListNames(attending),
                        "), enough for an epoch; waits up to ",
                        absl::FormatDuration(job.spec.join_window), " for up to ",
                        job.spec.LargestEpoch() - count, " more");
  }
  if (job.spec.workers.empty()) {
    return absl::StrCat(count, " of ", Workers(static_cast<std::size_t>(min)), " attend",
                        count == 0 ? "" : absl::StrCat(" (", ListNames(attending), ")"), "; ",
                        min - count, " more ", min - count == 1 ? "is" : "are", " needed");
  }
  std::vector<std::string> missing;
  for (const std::string& name : job.spec.workers) {
    const auto it = job.workers.find(name);
    if (it == job.workers.end() || it->second.stage != WorkerStage::kAttending) {
      missing.push_back(name);
    }
  }
  std::string text =
      absl::StrCat("waits for ", missing.size(), " of ", Workers(job.spec.workers.size()), ": ",
                   ListNames(missing), missing.size() == 1 ? " is" : " are", " missing");
  if (static_cast<std::size_t>(min) < job.spec.workers.size()) {
    absl::StrAppend(&text, " (an epoch needs ", min, ")");
  }
  return text;
}

}  // namespace

std::string DescribeJob(const JobState& job) {
  std::vector<std::string> attending, preparing, broken, left;
  for (const auto& [name, worker] : job.workers) {
    if (worker.stage == WorkerStage::kAttending) attending.push_back(name);
    if (worker.stage == WorkerStage::kPreparing) preparing.push_back(name);
    if (worker.stage == WorkerStage::kSuspect) broken.push_back(name);
    if (worker.stage == WorkerStage::kLeft) left.push_back(name);
  }
  std::string text;
  switch (job.stage) {
    case JobStage::kWaiting:
      text = DescribeWaiting(job, attending);
      break;
    case JobStage::kForming:
      text = absl::StrCat("epoch ", job.epoch->id.value(), " is proposed to ",
                          Workers(job.epoch->members.size()));
      if (!preparing.empty()) {
        absl::StrAppend(&text, "; ", ListNames(preparing),
                        preparing.size() == 1 ? " is" : " are", " not ready yet");
      }
      break;
    case JobStage::kRunning:
      text = absl::StrCat("epoch ", job.epoch->id.value(), " runs on ",
                          Workers(job.epoch->members.size()));
      if (job.epoch->regroup.valid()) {
        absl::StrAppend(&text, "; regroups as entry ", job.epoch->regroup.value(), " asks");
      }
      if (!job.epoch->stopped.empty()) {
        absl::StrAppend(&text, ", ",
                        ListNames({job.epoch->stopped.begin(), job.epoch->stopped.end()}),
                        job.epoch->stopped.size() == 1 ? " has" : " have", " stopped");
      }
      break;
  }
  if (!broken.empty()) {
    absl::StrAppend(&text, "; the connection to ", ListNames(broken),
                    " is broken, for less than the lease");
  }
  if (!left.empty()) absl::StrAppend(&text, "; ", ListNames(left), " finished");
  if (job.stage != JobStage::kWaiting && !attending.empty()) {
    absl::StrAppend(&text, "; ", ListNames(attending),
                    attending.size() == 1 ? " waits" : " wait", " for the next epoch");
  }
  if (job.stage == JobStage::kWaiting) {
    if (!job.last_refusal.empty()) absl::StrAppend(&text, "; ", job.last_refusal);
    if (!job.last_end.empty()) absl::StrAppend(&text, "; ", job.last_end);
  }
  if (!job.unmatched.empty()) {
    absl::StrAppend(&text, "; revision ", job.newest_policy().revision.value(),
                    " of the sync policy: ", job.unmatched);
  }
  if (!job.violation.empty()) absl::StrAppend(&text, "; NOT IN STEP: ", job.violation);
  return text;
}

}  // namespace lockstep
