#include "coordinator/core/durable_text.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace lockstep {
namespace {

std::string TextOf(const Member& member) {
  return absl::StrCat(member.worker, "#", member.incarnation.value());
}

std::string TextOf(const EpochState& epoch) {
  std::string text = absl::StrCat(" epoch ", epoch.id.value(), " stage ",
                                  static_cast<int>(epoch.stage), " plan ", epoch.plan.Digest(),
                                  " log ", epoch.log_number.value(), " regroup ",
                                  epoch.regroup.value());
  for (const Member& member : epoch.members) {
    absl::StrAppend(&text, " ", TextOf(member),
                    epoch.left.contains(member.worker) ? " (left)" : "");
  }
  return text + "\n";
}

std::string TextOf(const JobState& job) {
  const JobSpec& spec = job.spec;
  std::string text = absl::StrCat(
      spec.name, " stage ", static_cast<int>(job.stage), " workers ", spec.min_workers, " to ",
      spec.max_workers, ", ", spec.workers.size(), " listed, replicas ", spec.optimizer_replicas,
      " made ", absl::ToUnixNanos(job.create_time), " model ",
      job.manifest ? job.manifest->Digest() : 0, " last ", job.last_epoch.value(), " (",
      job.last_end, ") in force ", job.in_force.value(), " ", job.violation, "\n");
  if (job.epoch) absl::StrAppend(&text, TextOf(*job.epoch));
  absl::StrAppend(&text, " last run ", job.last_run.value());
  for (const auto& [worker, incarnation] : job.holders) {
    absl::StrAppend(&text, " ", worker, "#", incarnation.value());
  }
  absl::StrAppend(&text, "\n");
  for (const auto& [worker, incarnation] : job.drained) {
    absl::StrAppend(&text, " drained ", worker, "#", incarnation.value(), "\n");
  }
  if (job.to_drain) absl::StrAppend(&text, " to drain ", TextOf(*job.to_drain), "\n");
  for (const PolicyHistoryEntry& policy : job.policies) {
    absl::StrAppend(&text, " revision ", policy.revision.value(), " entry ",
                    policy.number.value(), " ", policy.etag, " ", policy.author, " ",
                    policy.reason, " ", absl::ToUnixNanos(policy.create_time), "\n");
  }
  for (const LoggedEntry& logged : job.log) {
    absl::StrAppend(&text, " entry ", logged.entry.number.value(), " kind ",
                    logged.entry.decision.index());
    for (const auto& [worker, step] : logged.applied) {
      absl::StrAppend(&text, " ", worker, "@", step);
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace

std::string DurableText(const ClusterState& state) {
  std::string text = absl::StrCat("generation ", state.generation.value(), "\n");
  for (const auto& [name, job] : state.jobs) absl::StrAppend(&text, TextOf(job));
  return text;
}

}  // namespace lockstep
