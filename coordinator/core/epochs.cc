// CoordinatorFsm: how epochs begin and end.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/policy/buffer_rules.h"
#include "common/policy/model_check.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/core/forming.h"
#include "coordinator/core/membership.h"
#include "coordinator/core/model_comparison.h"
#include "coordinator/core/policy_log.h"

namespace lockstep {
namespace {

// One message carries at most so many, far below kMaxEntriesPerMessage, since each
// may hold a policy of kMaxPolicyBytes, and a message has a limit of 64 MiB.
constexpr std::size_t kEntriesPerSend = 100;

// Whether it has the state of the last epoch that ran.
bool Holds(const JobState& job, const Member& member) {
  const auto it = job.holders.find(member.worker);
  return it != job.holders.end() && it->second == member.incarnation;
}

// Whether a checkpoint was asked for that no member took before its epoch ended.
bool AwaitsCheckpoint(const JobState& job) {
  for (std::int64_t number = job.in_force.value(); number < job.epoch->log_number.value();
       ++number) {
    const LoggedEntry& logged = job.log[static_cast<std::size_t>(number)];
    if (std::holds_alternative<CheckpointOnce>(logged.entry.decision) && logged.applied.empty()) {
      return true;
    }
  }
  return false;
}

}  // namespace

void CoordinatorFsm::FormIfPossible(MonoTime now, JobState& job, Effects& out) {
  if (job.retry_at && now < *job.retry_at) return;
  job.retry_at.reset();
  EpochRules rules = {.min_workers = job.spec.min_workers,
                      .max_workers = job.spec.LargestEpoch()};
  EpochDecision decision;
  do {  // of those left, there may be enough
    const Candidates candidates = FindCandidates(job, now);
    job.awaited = candidates.awaited;
    // Until they are heard, or their leases end.
    if (!job.awaited.empty()) {
      job.window_end.reset();
      return;
    }
    if (candidates.need_not_wait) job.window_end.reset();
    rules.join_window =
        candidates.need_not_wait ? absl::ZeroDuration() : job.spec.join_window;
    decision = DecideEpoch(candidates.names, rules, job.window_end, now);
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
  // Who comes anew must not break up those that trained together.
  const auto survivor = std::find_if(members.begin(), members.end(), [&](const auto& name) {
    return job.workers.at(name).is_survivor;
  });
  if (survivor != members.end() &&
      TurnAwayOthersThan(job, job.workers.at(*survivor), models, out)) {
    return true;
  }
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

bool CoordinatorFsm::TurnAwayOthersThan(JobState& job, const WorkerState& one,
                                        ModelComparison& models, Effects& out) {
  std::vector<std::pair<std::string, std::string>> misfits;
  for (const auto& [name, worker] : job.workers) {
    if (worker.stage != WorkerStage::kAttending || worker.is_survivor) continue;
    if (auto difference = FindDisagreement({&one, &worker}, models)) {
      misfits.emplace_back(name, *std::move(difference));
    }
  }
  for (const auto& [name, difference] : misfits) {
    job.last_refusal =
        absl::StrCat("a worker that cannot train with the others was turned away: ", difference);
    PutOut(job, name,
           absl::InvalidArgumentError(absl::StrCat(
               "worker '", name, "' differs from those that train: ", difference,
               "; start it with the same model, optimizer and transport")),
           out);
  }
  return !misfits.empty();
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
  const SharedMessage proposal = MakeProposal(job);
  for (const std::string& member : members) {
    WorkerState& worker = job.workers.at(member);
    worker.sync = {};
    SendProposal(job, worker, proposal, out);
  }
}

SharedMessage CoordinatorFsm::MakeProposal(const JobState& job) {
  const EpochState& epoch = *job.epoch;
  Proposal proposal = {.epoch = epoch.id,
                       .plan = epoch.plan,
                       .log_number = epoch.log_number,
                       .ready_timeout = job.spec.ready_timeout,
                       .optimizer_replicas = job.spec.optimizer_replicas};
  bool any_holds = false;
  for (const Member& member : epoch.members) {
    proposal.members.push_back(member.worker);
    any_holds = any_holds || Holds(job, member);
  }
  if (!any_holds) proposal.missed = job.last_run;
  // Later revisions, if this is sent again, follow as entries.
  const auto newest = std::find_if(
      job.policies.rbegin(), job.policies.rend(),
      [&](const PolicyHistoryEntry& policy) { return policy.number <= epoch.log_number; });
  proposal.revision = newest->revision;
  proposal.policy = newest->policy;
  return std::make_shared<const CoordinatorMessage>(std::move(proposal));
}

void CoordinatorFsm::SendProposal(const JobState& job, WorkerState& worker,
                                  const SharedMessage& proposal, Effects& out) {
  const EpochState& epoch = *job.epoch;
  out.send.push_back({worker.stream, proposal});
  if (epoch.endpoint) out.send.push_back({worker.stream, Endpoint{epoch.id, *epoch.endpoint}});
  worker.stage = WorkerStage::kPreparing;
  worker.sent = epoch.log_number;
}

void CoordinatorFsm::StartIfReady(JobState& job, Effects& out) {
  for (const Member& member : job.epoch->members) {
    if (job.workers.at(member.worker).stage != WorkerStage::kReady) return;
  }
  const bool asks_again = AwaitsCheckpoint(job);
  const std::optional<Member> to_drain = job.to_drain;
  Persist(EpochStarted{job.spec.name, job.epoch->id}, out);
  job.epoch->highest_since = now_;
  const auto start = std::make_shared<const CoordinatorMessage>(Start{job.epoch->id});
  for (const Member& member : job.epoch->members) {
    WorkerState& worker = job.workers.at(member.worker);
    worker.stage = WorkerStage::kTraining;
    worker.step_since = now_;
    worker.sync = {};
    out.send.push_back({worker.stream, start});
  }
  if (asks_again) AskAgain(job, CheckpointOnce{}, out);
  if (!to_drain) return;
  if (const auto it = job.workers.find(to_drain->worker);
      it != job.workers.end() && IsDrained(job, it->first, it->second.incarnation)) {
    PutOutDrained(job, it->second, out);
    return;
  }
  if (!job.to_drain) return;
  const DrainWorker drain = {.job = job.spec.name, .worker = job.to_drain->worker};
  // Where now too few would be left, it waits for an epoch of more.
  if (CheckDrain(job, drain).ok()) AskAgain(job, Regroup{drain.worker}, out);
}

void CoordinatorFsm::AskAgain(const JobState& job, Decision decision, Effects& out) {
  Persist(EntryAppended{.job = job.spec.name,
                        .entry = {job.last_number().next(), std::move(decision)},
                        .reason = "asked for in an epoch that ended before"},
          out);
}

void CoordinatorFsm::SendNewEntries(JobState& job, Effects& out) {
  // Everyone has what the proposal stood for.
  if (!job.epoch || job.epoch->log_number == job.last_number()) return;
  std::map<LogNumber, SharedMessage> behind;  // the entries behind this one
  for (auto& [name, worker] : job.workers) {
    if (!worker.stream.valid() || worker.sent == job.last_number() || job.RankOf(name) < 0) {
      continue;
    }
    while (worker.sent < job.last_number()) {
      const auto begin = static_cast<std::size_t>(worker.sent.value());
      const std::size_t end = std::min(job.log.size(), begin + kEntriesPerSend);
      SharedMessage& message = behind[worker.sent];
      if (message == nullptr) {
        NewEntries entries;
        for (std::size_t i = begin; i < end; ++i) entries.entries.push_back(job.log[i].entry);
        message = std::make_shared<const CoordinatorMessage>(std::move(entries));
      }
      out.send.push_back({worker.stream, message});
      worker.sent = LogNumber(static_cast<std::int64_t>(end));
    }
  }
}

void CoordinatorFsm::EndEpoch(JobState& job, const absl::Status& why, Effects& out,
                              bool regrouped) {
  const EpochState epoch = *job.epoch;
  if (epoch.highest_step > job.last_step) job.fruitless = 0;
  job.last_step = job.step();
  Persist(EpochEnded{job.spec.name, epoch.id,
                     std::string(why.ok() ? kAllMembersFinished : why.message()), regrouped},
          out);
  job.window_end.reset();
  job.regroup_at.reset();
  for (auto& [name, worker] : job.workers) worker.is_survivor = false;
  const auto abort = std::make_shared<const CoordinatorMessage>(AbortEpoch{epoch.id, why});
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
    worker.is_survivor = true;
    if (IsDrained(job, member.worker, member.incarnation)) {
      PutOutDrained(job, worker, out);
      continue;
    }
    if (!worker.stream.valid()) continue;
    worker.stage = WorkerStage::kAttending;
    out.send.push_back({worker.stream, abort});
    // What it said may wait behind what ended the epoch, as after a pause of this
    // process.
    if (IsSilent(job, worker, now_)) job.retry_at = now_ + ReturnTime(job.spec);
  }
}

void CoordinatorFsm::PutOut(JobState& job, const std::string& name, const absl::Status& why,
                            Effects& out) {
  const auto it = job.workers.find(name);
  if (it->second.stream.valid()) {
    streams_.erase(it->second.stream);
    out.end.push_back({it->second.stream, why});
  }
  job.workers.erase(it);
}

}  // namespace lockstep
