#include "coordinator/core/fold.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/sharding/shard_plan.h"
#include "coordinator/core/membership.h"
#include "coordinator/core/names.h"
#include "coordinator/core/policy_log.h"

namespace lockstep {
namespace {

// Else an epoch of all workers could not be planned.
static_assert(kMaxWorkersPerJob <= kMaxWorldSize);

template <typename... Parts>
absl::Status Contradiction(const Parts&... parts) {
  return absl::DataLossError(absl::StrCat(parts...));
}

absl::StatusOr<JobState*> FindJob(ClusterState& state, const std::string& name) {
  const auto it = state.jobs.find(name);
  if (it == state.jobs.end()) return Contradiction("there is no job ", Quoted(name));
  return &it->second;
}

// The job, if `epoch` is its current one.
absl::StatusOr<JobState*> FindEpoch(ClusterState& state, const std::string& name, Epoch epoch) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindJob(state, name));
  if (!job->epoch || job->epoch->id != epoch) {
    return Contradiction("epoch ", epoch.value(), " of job ", Quoted(name), " is not current");
  }
  return job;
}

// Whether `id` may follow `last`, and another may follow it.
template <typename Id>
bool Follows(Id id, Id last) {
  return id > last && id.value() < std::numeric_limits<std::int64_t>::max();
}

absl::Status On(const GenerationStarted& record, ClusterState& state) {
  if (!Follows(record.generation, state.generation)) {
    return Contradiction("generation ", record.generation.value(), " follows ",
                         state.generation.value());
  }
  state.generation = record.generation;
  return absl::OkStatus();
}

absl::Status On(const JobCreated& record, ClusterState& state) {
  const std::string& name = record.spec.name;
  if (state.jobs.contains(name)) return Contradiction("job ", Quoted(name), " is created twice");
  const absl::Status valid = Validate(record.spec);
  if (!valid.ok()) return Contradiction("job ", Quoted(name), " is not valid: ", valid.message());
  JobState& job = state.jobs[name];
  job.spec = record.spec;
  job.create_time = record.create_time;
  job.policies.push_back({.revision = Revision(1),
                          .policy = record.spec.policy,
                          .etag = PolicyEtag(name, record.create_time, Revision(1),
                                             record.spec.policy),
                          .create_time = record.create_time});
  return absl::OkStatus();
}

absl::Status On(const JobDeleted& record, ClusterState& state) {
  LOCKSTEP_RETURN_IF_ERROR(FindJob(state, record.job).status());
  state.jobs.erase(record.job);
  return absl::OkStatus();
}

absl::Status On(const ManifestAgreed& record, ClusterState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindJob(state, record.job));
  if (job->epoch) return Contradiction("the model of job '", record.job, "' changes in an epoch");
  job->manifest = record.manifest;
  return absl::OkStatus();
}

absl::Status On(const EpochProposed& record, ClusterState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindJob(state, record.job));
  if (job->epoch || !Follows(record.epoch, job->last_epoch)) {
    return Contradiction("epoch ", record.epoch.value(), " of job '", record.job,
                         "' is proposed after epoch ", job->last_epoch.value(),
                         job->epoch ? ", which is not over" : "");
  }
  if (!job->manifest) return Contradiction("job '", record.job, "' has an epoch but no model");
  const auto by_name = [](const Member& a, const Member& b) { return a.worker >= b.worker; };
  if (std::adjacent_find(record.members.begin(), record.members.end(), by_name) !=
      record.members.end()) {
    return Contradiction("members of epoch ", record.epoch.value(), " are not sorted by name");
  }
  for (const Member& member : record.members) {
    if (!IsWorkerName(member.worker) || !member.incarnation.valid() ||
        !job->spec.Lists(member.worker) || IsDrained(*job, member.worker, member.incarnation)) {
      return Contradiction("worker ", Quoted(member.worker), " of epoch ", record.epoch.value(),
                           " is none, is not listed or was drained");
    }
  }
  absl::StatusOr<ShardPlan> plan =
      PlanShards(*job->manifest, static_cast<int>(record.members.size()));
  if (!plan.ok()) return Contradiction("no shard plan: ", plan.status().message());
  const std::uint64_t plan_digest = plan->Digest();
  job->epoch = EpochState{.id = record.epoch,
                          .members = record.members,
                          .plan = *std::move(plan),
                          .plan_digest = plan_digest,
                          .log_number = job->last_number()};
  job->last_epoch = record.epoch;
  job->stage = JobStage::kForming;
  return absl::OkStatus();
}

absl::Status On(const EpochStarted& record, ClusterState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindEpoch(state, record.job, record.epoch));
  if (job->epoch->stage != EpochStage::kProposed) {
    return Contradiction("epoch ", record.epoch.value(), " starts twice");
  }
  job->epoch->stage = EpochStage::kRunning;
  job->stage = JobStage::kRunning;
  job->in_force = job->epoch->log_number;
  if (job->to_drain && !IsMember(*job->epoch, *job->to_drain)) {
    // The job went on without it already, perhaps with another start of it.
    if (job->RankOf(job->to_drain->worker) < 0) {
      job->drained[job->to_drain->worker] = job->to_drain->incarnation;
    }
    job->to_drain.reset();
  }
  return absl::OkStatus();
}

absl::Status On(const MemberLeft& record, ClusterState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindEpoch(state, record.job, record.epoch));
  if (job->RankOf(record.worker) < 0 || job->epoch->left.contains(record.worker)) {
    return Contradiction(Quoted(record.worker), " leaves epoch ", record.epoch.value(),
                         ", of which it is no member");
  }
  if (job->epoch->left.size() + 1 == job->epoch->members.size()) {
    return Contradiction("all have left epoch ", record.epoch.value(), ", but it has not ended");
  }
  job->epoch->left.insert(record.worker);
  return absl::OkStatus();
}

absl::Status On(const EpochEnded& record, ClusterState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindEpoch(state, record.job, record.epoch));
  if (record.regrouped && !job->epoch->regroup.valid()) {
    return Contradiction("epoch ", record.epoch.value(), " regrouped, which nobody asked for");
  }
  while (IsEffective(*job, job->in_force.next())) job->in_force = job->in_force.next();
  if (job->epoch->regroup.valid()) {
    const auto index = static_cast<std::size_t>(job->epoch->regroup.value() - 1);
    const std::string& drain = std::get<Regroup>(job->log[index].entry.decision).drain;
    const int rank = job->RankOf(drain);
    if (rank >= 0) {
      const Member& member = job->epoch->members[static_cast<std::size_t>(rank)];
      // Else others may not have what it has.
      if (record.regrouped) {
        job->drained[drain] = member.incarnation;
      } else {
        job->to_drain = member;
      }
    }
  }
  if (job->epoch->stage == EpochStage::kRunning) {
    job->last_run = record.epoch;
    job->holders.clear();
    for (const Member& member : job->epoch->members) {
      const bool has_left = job->epoch->left.contains(member.worker);
      job->holders[member.worker] = has_left ? Incarnation() : member.incarnation;
    }
  }
  job->epoch.reset();
  job->stage = JobStage::kWaiting;
  job->last_end = absl::StrCat("epoch ", record.epoch.value(), " ended: ", record.why);
  return absl::OkStatus();
}

absl::Status On(const EntryAppended& record, ClusterState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindJob(state, record.job));
  if (record.entry.number != job->last_number().next()) {
    return Contradiction("entry ", record.entry.number.value(), " of job '", record.job,
                         "' follows entry ", job->last_number().value());
  }
  if (const auto* revised = std::get_if<PolicyRevised>(&record.entry.decision)) {
    if (revised->revision != job->newest_policy().revision.next()) {
      return Contradiction("revision ", revised->revision.value(), " of job '", record.job,
                           "' follows revision ", job->newest_policy().revision.value());
    }
    job->policies.push_back({.revision = revised->revision,
                             .policy = revised->policy,
                             .number = record.entry.number,
                             .etag = PolicyEtag(record.job, job->create_time, revised->revision,
                                                revised->policy),
                             .create_time = record.create_time,
                             .author = record.author,
                             .reason = record.reason});
  }
  if (const auto* regroup = std::get_if<Regroup>(&record.entry.decision)) {
    if (job->stage != JobStage::kRunning || job->epoch->regroup.valid()) {
      return Contradiction("entry ", record.entry.number.value(), " of job '", record.job,
                           "' regroups an epoch that does not run, or ends already");
    }
    job->epoch->regroup = record.entry.number;
    if (job->to_drain && job->to_drain->worker == regroup->drain) job->to_drain.reset();
  }
  job->log.push_back({.entry = record.entry});
  return absl::OkStatus();
}

absl::Status On(const EntryApplied& record, ClusterState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindJob(state, record.job));
  if (!record.number.valid() || record.number > job->last_number()) {
    return Contradiction("job '", record.job, "' has no entry ", record.number.value());
  }
  if (job->RankOf(record.worker) < 0) {
    return Contradiction(Quoted(record.worker), " applies entry ", record.number.value(),
                         " of job '", record.job, "', in whose epoch it has no part");
  }
  auto& applied = job->log[static_cast<std::size_t>(record.number.value() - 1)].applied;
  // While there is no violation all are the same.
  if (job->violation.empty() && !applied.empty() && applied.begin()->second != record.step) {
    const auto& [worker, step] = *applied.begin();
    job->violation = absl::StrCat("entry ", record.number.value(), " took effect after step ",
                                  step, " on ", worker, " but after step ", record.step, " on ",
                                  record.worker);
  }
  applied[record.worker] = record.step;
  return absl::OkStatus();
}

}  // namespace

absl::Status Apply(const Record& record, ClusterState& state) {
  return std::visit([&](const auto& r) { return On(r, state); }, record);
}

}  // namespace lockstep
