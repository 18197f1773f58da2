// CoordinatorFsm: how epochs begin and end.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/policy/buffer_rules.h"
#include "common/policy/model_check.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/core/forming.h"
#include "coordinator/core/model_comparison.h"

namespace lockstep {
namespace {

// One message carries at most so many, far below kMaxEntriesPerMessage, since each
// may hold a policy of kMaxPolicyBytes, and a message has a limit of 64 MiB.
constexpr std::size_t kEntriesPerSend = 100;

absl::Duration Rounded(absl::Duration duration) {
  return absl::Trunc(duration, absl::Milliseconds(1));
}

}  // namespace

void CoordinatorFsm::FormIfPossible(MonoTime now, JobState& job, Effects& out) {
  const EpochRules rules = {.min_workers = job.spec.min_workers,
                            .max_workers = job.spec.LargestEpoch(),
                            .join_window = job.spec.join_window};
  EpochDecision decision;
  do {  // of those left, there may be enough
    std::vector<std::string> attending;
    for (const auto& [name, worker] : job.workers) {
      if (worker.stage == WorkerStage::kAttending) attending.push_back(name);
    }
    decision = DecideEpoch(attending, rules, job.window_end, now);
    job.window_end = decision.window_end;
    if (decision.hold != Hold::kNone) return;
  } while (TurnAwayIfTheyDisagree(job, decision.members, out));
  // Before the first epoch a policy is accepted unseen by any model.
  const PolicyHistoryEntry& newest = job.newest_policy();
  const absl::Status fits = CheckNewestPolicy(job, *KnownModel(job));
  if (!fits.ok()) {
    job.last_refusal =
        absl::StrCat("no epoch is proposed, since revision ", newest.revision.value(),
                     " of the sync policy does not fit the model: ", fits.message(),
                     "; the workers wait for an update of the policy");
    return;
  }
  Propose(now, job, decision.members, out);
}

absl::Status CoordinatorFsm::CheckNewestPolicy(const JobState& job, const Manifest& model) {
  const PolicyHistoryEntry& newest = job.newest_policy();
  PolicyFit& fit = fits_[job.spec.name];
  const std::uint64_t digest = model.Digest();
  if (fit.revision != newest.revision || fit.model != digest) {
    fit = {newest.revision, digest, CheckOperations(newest.policy, model)};
  }
  return fit.fits;
}

bool CoordinatorFsm::TurnAwayIfTheyDisagree(JobState& job, const std::vector<std::string>& members,
                                            Effects& out) {
  ModelComparison models(job.newest_policy().policy);
  if (TurnAwayOthersThanTheJobs(job, members, models, out)) return true;
  std::vector<const WorkerState*> workers;
  for (const std::string& name : members) workers.push_back(&job.workers.at(name));
  const std::optional<std::string> difference = FindDisagreement(workers, models);
  if (!difference) return false;
  job.last_refusal = absl::StrCat("workers that cannot train together were turned away: ",
                                  *difference);
  const absl::Status why = absl::InvalidArgumentError(
      absl::StrCat("the workers of job '", job.spec.name, "' differ: ", *difference,
                   "; start all with the same model, optimizer and transport"));
  for (const std::string& name : members) PutOut(job, name, why, out);
  return true;
}

bool CoordinatorFsm::TurnAwayOthersThanTheJobs(JobState& job,
                                               const std::vector<std::string>& workers,
                                               ModelComparison& models, Effects& out) {
  if (!job.manifest) return false;
  bool any = false;
  for (const std::string& name : workers) {
    const auto difference = models.FirstDifference("the job", *job.manifest, name,
                                                   job.workers.at(name).manifest);
    if (!difference) continue;
    any = true;
    job.last_refusal = absl::StrCat("a worker with another model was turned away: ", *difference);
    PutOut(job, name,
           absl::InvalidArgumentError(
               absl::StrCat("the job's epochs have another model: ", *difference)),
           out);
  }
  return any;
}

void CoordinatorFsm::Propose(MonoTime now, JobState& job, const std::vector<std::string>& members,
                             Effects& out) {
  const std::string& name = job.spec.name;
  if (!job.manifest) {
    Persist(ManifestAgreed{name, job.workers.at(members.front()).manifest}, out);
    const absl::StatusOr<BufferRules> rules = BufferRules::Compile(job.newest_policy().policy);
    if (rules.ok()) {
      job.unmatched =
          std::string(CheckPatternsMatch(*rules, KnownBufferNames(job)).message());
    }
    // From now on a Hello with another model is refused; these came before.
    std::vector<std::string> all;
    for (const auto& [worker, state] : job.workers) all.push_back(worker);
    ModelComparison models(job.newest_policy().policy);
    TurnAwayOthersThanTheJobs(job, all, models, out);
  }
  EpochProposed record = {.job = name, .epoch = job.last_epoch.next()};
  for (const std::string& member : members) {
    record.members.push_back({member, job.workers.at(member).incarnation});
  }
  Persist(std::move(record), out);
  job.epoch->ready_deadline = now + job.spec.ready_timeout;
  job.last_refusal.clear();
  for (const std::string& member : members) {
    WorkerState& worker = job.workers.at(member);
    worker.step = 0;
    worker.sync = {};
    SendProposal(job, worker, out);
  }
}

void CoordinatorFsm::SendProposal(const JobState& job, WorkerState& worker, Effects& out) {
  const EpochState& epoch = *job.epoch;
  Proposal proposal = {.epoch = epoch.id,
                       .plan = epoch.plan,
                       .log_number = epoch.log_number,
                       .ready_timeout = job.spec.ready_timeout,
                       .optimizer_replicas = job.spec.optimizer_replicas};
  for (const Member& member : epoch.members) proposal.members.push_back(member.worker);
  // Later revisions, if this is sent again, follow as entries.
  const auto newest = std::find_if(
      job.policies.rbegin(), job.policies.rend(),
      [&](const PolicyHistoryEntry& policy) { return policy.number <= epoch.log_number; });
  proposal.revision = newest->revision;
  proposal.policy = newest->policy;
  out.send.push_back({worker.stream, std::move(proposal)});
  if (epoch.endpoint) out.send.push_back({worker.stream, Endpoint{epoch.id, *epoch.endpoint}});
  worker.stage = WorkerStage::kPreparing;
  worker.sent = epoch.log_number;
}

void CoordinatorFsm::StartIfReady(JobState& job, Effects& out) {
  for (const Member& member : job.epoch->members) {
    if (job.workers.at(member.worker).stage != WorkerStage::kReady) return;
  }
  Persist(EpochStarted{job.spec.name, job.epoch->id}, out);
  job.last_step = 0;
  for (const Member& member : job.epoch->members) {
    WorkerState& worker = job.workers.at(member.worker);
    worker.stage = WorkerStage::kTraining;
    worker.step = 0;
    worker.sync = {};
    out.send.push_back({worker.stream, Start{job.epoch->id}});
  }
}

void CoordinatorFsm::SendNewEntries(JobState& job, Effects& out) {
  if (!job.epoch) return;
  for (const Member& member : job.epoch->members) {
    WorkerState& worker = job.workers.at(member.worker);
    while (worker.stream.valid() && worker.sent < job.last_number()) {
      NewEntries message;
      const auto begin = static_cast<std::size_t>(worker.sent.value());
      const std::size_t end = std::min(job.log.size(), begin + kEntriesPerSend);
      for (std::size_t i = begin; i < end; ++i) message.entries.push_back(job.log[i].entry);
      out.send.push_back({worker.stream, std::move(message)});
      worker.sent = LogNumber(static_cast<std::int64_t>(end));
    }
  }
}

void CoordinatorFsm::EndEpoch(JobState& job, const absl::Status& why, Effects& out) {
  const EpochState epoch = *job.epoch;
  job.last_step = std::max(job.last_step, job.step());
  Persist(EpochEnded{job.spec.name, epoch.id,
                     why.ok() ? "all members finished" : std::string(why.message())},
          out);
  job.window_end.reset();
  for (const Member& member : epoch.members) {
    const auto it = job.workers.find(member.worker);
    if (it == job.workers.end()) continue;
    WorkerState& worker = it->second;
    if (worker.stage == WorkerStage::kLeft) {
      job.workers.erase(it);
      continue;
    }
    worker.plan_digest = 0;
    worker.optimizer_bytes = 0;
    worker.sent = LogNumber();
    if (!worker.stream.valid()) continue;
    worker.stage = WorkerStage::kAttending;
    out.send.push_back({worker.stream, AbortEpoch{epoch.id, why}});
  }
}

void CoordinatorFsm::PutOut(JobState& job, const std::string& name, const absl::Status& why,
                            Effects& out) {
  const auto it = job.workers.find(name);
  if (it->second.stream.valid()) {
    streams_.erase(it->second.stream);
    out.end.push_back({it->second.stream, why});
  }
  // The highest step must outlive whoever made it.
  if (job.stage == JobStage::kRunning) job.last_step = std::max(job.last_step, it->second.step);
  job.workers.erase(it);
}

bool CoordinatorFsm::ExpireLeases(MonoTime now, JobState& job, Effects& out) {
  std::vector<std::string> silent, lost_members;
  for (const auto& [name, worker] : job.workers) {
    if (worker.stage == WorkerStage::kLeft || now < worker.last_heard + job.spec.lease) continue;
    silent.push_back(name);
    if (job.RankOf(name) >= 0) lost_members.push_back(name);
  }
  if (silent.empty()) return false;

  absl::Status epoch_end;
  if (!lost_members.empty()) {
    const std::string& first = lost_members.front();
    std::string why = absl::StrCat(
        "worker '", first, "' (rank ", job.RankOf(first), ") of epoch ", job.epoch->id.value(),
        " was silent for ", absl::FormatDuration(Rounded(now - job.workers.at(first).last_heard)),
        ", longer than its lease");
    if (lost_members.size() > 1) {
      absl::StrAppend(&why, "; so were ",
                      ListNames({lost_members.begin() + 1, lost_members.end()}));
    }
    epoch_end = absl::UnavailableError(why);
  }
  for (const std::string& name : silent) {
    PutOut(job, name,
           absl::DeadlineExceededError(absl::StrCat(
               "worker '", name, "' was silent for longer than its lease of ",
               absl::FormatDuration(job.spec.lease), "; attend again")),
           out);
  }
  if (!epoch_end.ok()) EndEpoch(job, epoch_end, out);
  return true;
}

bool CoordinatorFsm::ExpireReadiness(MonoTime now, JobState& job, Effects& out) {
  if (job.stage != JobStage::kForming || now < job.epoch->ready_deadline) return false;
  std::vector<std::string> missing;
  for (const Member& member : job.epoch->members) {
    if (job.workers.at(member.worker).stage != WorkerStage::kReady) {
      missing.push_back(member.worker);
    }
  }
  const absl::Status why = absl::DeadlineExceededError(
      absl::StrCat("not ready in ", absl::FormatDuration(job.spec.ready_timeout), ": ",
                   ListNames(missing)));
  for (const std::string& name : missing) PutOut(job, name, why, out);
  EndEpoch(job, why, out);
  return true;
}

}  // namespace lockstep
