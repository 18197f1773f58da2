#include "coordinator/rpc/read_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/protocol/messages.h"

namespace lockstep {

absl::Status CheckJobName(const std::string& job) {
  if (job.empty()) return absl::InvalidArgumentError("job is empty, but names the job");
  if (job.size() > static_cast<std::size_t>(kMaxJobNameBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job has ", job.size(), " bytes, but a name has at most ", kMaxJobNameBytes));
  }
  return absl::OkStatus();
}

absl::Status NoSuchJob(const std::string& job) {
  return absl::NotFoundError(
      absl::StrCat("there is no job '", job, "'; create it first, or look at the list of jobs"));
}

absl::Status NoState(const Coordinator& coordinator) {
  const absl::Status health = coordinator.health();
  return absl::UnavailableError(
      health.ok() ? "the coordinator is stopping or overloaded; try again"
                  : absl::StrCat("the coordinator has stopped: ", health.message()));
}

void ReadJob(Coordinator* coordinator, const std::string& job, SharedCompletion completion,
             std::function<absl::Status(const JobState&)> fill) {
  const absl::Status name = CheckJobName(job);
  if (!name.ok()) {
    completion->Finish(name);
    return;
  }
  coordinator->Read([=, fill = std::move(fill)](const ClusterState* state) {
    if (state == nullptr) {
      completion->Finish(NoState(*coordinator));
      return;
    }
    const auto found = state->jobs.find(job);
    completion->Finish(found == state->jobs.end() ? NoSuchJob(job) : fill(found->second));
  });
}

}  // namespace lockstep
