#include "coordinator/core/membership.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "coordinator/core/model_comparison.h"
#include "coordinator/core/names.h"

namespace lockstep {
namespace {

// What the job demands of any worker.
absl::Status CheckHello(const JobState& job, const Hello& hello) {
  if (!IsWorkerName(hello.worker)) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker is ", Quoted(hello.worker), "; ", kWorkerNameRule));
  }
  if (!hello.incarnation.valid()) {
    return absl::InvalidArgumentError(absl::StrCat("incarnation is ", hello.incarnation.value(),
                                                   "; it must be positive"));
  }
  if (!job.spec.Lists(hello.worker)) {
    return absl::PermissionDeniedError(
        absl::StrCat("job '", job.spec.name, "' does not list a worker '", hello.worker,
                     "'; it lists ", ListNames(job.spec.workers)));
  }
  LOCKSTEP_RETURN_IF_ERROR(Validate(hello.manifest));
  LOCKSTEP_RETURN_IF_ERROR(PlanShards(hello.manifest, 1).status());
  if (job.manifest) {
    ModelComparison models(job.newest_policy().policy);
    if (const auto difference = models.FirstDifference("the job", *job.manifest, hello.worker,
                                                       hello.manifest)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the model differs from that of the job's epochs before: ", *difference,
          "; start the worker with the job's model and optimizer, or create another job"));
    }
  }
  if (hello.log_number > job.last_number()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the worker holds control entry ", hello.log_number.value(), " but job '", job.spec.name,
        "' has ", job.last_number().value(), "; is it another coordinator's?"));
  }
  if (hello.epoch > job.last_epoch) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the worker is in epoch ", hello.epoch.value(), " but the last epoch of job '",
        job.spec.name, "' is ", job.last_epoch.value(), "; is it another coordinator's?"));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsDrained(const JobState& job, const std::string& worker, Incarnation incarnation) {
  const auto it = job.drained.find(worker);
  return it != job.drained.end() && incarnation <= it->second;
}

absl::Status Drained(const std::string& worker) {
  return absl::CancelledError(absl::StrCat("worker '", worker,
                                           "' was drained: the job goes on without it; to take "
                                           "part again, start it anew"));
}

HelloDecision DecideHello(const JobState& job, const Hello& hello) {
  const auto refuse = [](absl::Status why) {
    return HelloDecision{Greeting::kRefuse, std::move(why)};
  };
  absl::Status status = CheckHello(job, hello);
  if (!status.ok()) return refuse(std::move(status));

  if (IsDrained(job, hello.worker, hello.incarnation)) return refuse(Drained(hello.worker));
  const auto it = job.workers.find(hello.worker);
  if (it == job.workers.end()) {
    if (job.workers.size() >= static_cast<std::size_t>(kMaxWorkersPerJob)) {
      return refuse(absl::ResourceExhaustedError(absl::StrCat(
          "job '", job.spec.name, "' has its limit of ", kMaxWorkersPerJob, " workers")));
    }
    return {Greeting::kJoin};
  }

  const WorkerState& known = it->second;
  if (hello.incarnation < known.incarnation) {
    return refuse(absl::AbortedError(absl::StrCat(
        "worker '", hello.worker, "' attends already, started later (incarnation ",
        known.incarnation.value(), ") than this one (", hello.incarnation.value(), ")")));
  }
  const bool is_same = hello.incarnation == known.incarnation;
  if (known.stage == WorkerStage::kLeft) {
    if (is_same) return {Greeting::kAlreadyLeft};
    return refuse(absl::UnavailableError(absl::StrCat(
        "worker '", hello.worker, "' finished its part of epoch ", job.epoch->id.value(),
        ", which still runs; try again when it is over")));
  }
  if (!is_same) return {Greeting::kReplace};
  if (job.FindMember(hello.worker) == nullptr) return {Greeting::kJoin};
  if (hello.epoch == job.epoch->id) return {Greeting::kResume};
  return {job.stage == JobStage::kForming ? Greeting::kPropose : Greeting::kRejoin};
}

AbortEpoch EpochIsOver(const JobState& job, Epoch epoch) {
  absl::string_view why = job.last_end;
  if (!absl::ConsumePrefix(&why, absl::StrCat("epoch ", epoch.value(), " ended: "))) {
    return {epoch, absl::AbortedError(absl::StrCat("epoch ", epoch.value(), " is over"))};
  }
  return {epoch, absl::AbortedError(why)};
}

bool IsCurrent(const JobState& job, const WorkerState& worker, Epoch epoch, Effects& out) {
  if (job.FindMember(worker.name) != nullptr && job.epoch->id == epoch) return true;
  if (epoch.valid()) out.send.push_back({worker.stream, EpochIsOver(job, epoch)});
  return false;
}

}  // namespace lockstep
