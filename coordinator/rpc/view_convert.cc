#include "coordinator/rpc/view_convert.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/protocol/messages.h"
#include "common/sharding/replicas.h"
#include "coordinator/convert/job_spec.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

v1::Job::State ViewOf(JobStage stage) {
  switch (stage) {
    case JobStage::kWaiting:
      return v1::Job::STATE_WAITING;
    case JobStage::kForming:
      return v1::Job::STATE_FORMING;
    case JobStage::kRunning:
      return v1::Job::STATE_RUNNING;
  }
  return v1::Job::STATE_UNSPECIFIED;
}

v1::Worker::State ViewOf(WorkerStage stage) {
  switch (stage) {
    case WorkerStage::kAttending:
      return v1::Worker::STATE_ATTENDING;
    case WorkerStage::kPreparing:
      return v1::Worker::STATE_PREPARING;
    case WorkerStage::kReady:
      return v1::Worker::STATE_READY;
    case WorkerStage::kTraining:
      return v1::Worker::STATE_TRAINING;
    case WorkerStage::kSuspect:
      return v1::Worker::STATE_SUSPECT;
    case WorkerStage::kLeft:
      return v1::Worker::STATE_LEFT;
  }
  return v1::Worker::STATE_UNSPECIFIED;
}

std::string PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kUnspecified:
      return "";
    case Phase::kJoining:
      return "joining";
    case Phase::kTraining:
      return "training";
    case Phase::kEvaluating:
      return "evaluating";
  }
  return "";
}

// Of a member of the running epoch: entries take effect in order.
LogNumber AppliedBy(const JobState& job, const std::string& worker) {
  if (!job.epoch.has_value() || job.epoch->stage != EpochStage::kRunning ||
      job.RankOf(worker) < 0) {
    return LogNumber();
  }
  const std::int64_t from_start = job.epoch->log_number.value();
  for (std::int64_t number = job.last_number().value(); number > from_start; --number) {
    if (job.log[static_cast<std::size_t>(number - 1)].applied.contains(worker)) {
      return LogNumber(number);
    }
  }
  return job.epoch->log_number;
}

LogNumber AppliedByAll(const JobState& job) {
  std::int64_t number = job.last_number().value();
  while (number > 0 && !IsEffective(job, LogNumber(number))) --number;
  return LogNumber(number);
}

// Not so for a revision that was only validated.
bool IsMade(const JobState& job, const PolicyHistoryEntry& revision) {
  const auto index = static_cast<std::size_t>(revision.revision.value() - 1);
  return index < job.policies.size() && job.policies[index].etag == revision.etag;
}

// What the optimizer keeps for an element; nothing before members told.
std::optional<std::int64_t> ElementBytesIn(const JobState& job) {
  const WorkerState* const first = job.FindMember(job.epoch->members.front().worker);
  const bool has_told = first != nullptr && (first->stage == WorkerStage::kReady ||
                                             first->stage == WorkerStage::kTraining);
  if (!has_told || job.epoch->plan.shards.front().elements() == 0) return std::nullopt;
  return ElementBytesOf(job.epoch->plan, 0, job.spec.optimizer_replicas, first->optimizer_bytes);
}

v1::ReplicaCost CostOf(const ShardPlan& plan, int replicas,
                       std::optional<std::int64_t> element_bytes) {
  v1::ReplicaCost cost;
  cost.set_optimizer_replicas(replicas);
  for (int rank = 0; rank < static_cast<int>(plan.shards.size()); ++rank) {
    cost.set_step_bytes(std::max(cost.step_bytes(), BytesSentInStep(plan, rank, replicas)));
    if (!element_bytes) continue;
    cost.set_optimizer_bytes(std::max(cost.optimizer_bytes(),
                                      StateBytes(plan, rank, replicas, *element_bytes)));
  }
  return cost;
}

}  // namespace

v1::SyncPolicyRevision ViewOfRevision(const JobState& job, const PolicyHistoryEntry& revision) {
  v1::SyncPolicyRevision view;
  view.set_revision(revision.revision.value());
  *view.mutable_policy() = ToProto(revision.policy);
  view.set_etag(revision.etag);
  *view.mutable_create_time() = ToProto(revision.create_time);
  view.set_author(revision.author);
  view.set_reason(revision.reason);
  view.set_log_number(revision.number.value());
  view.set_state(v1::SyncPolicyRevision::STATE_PENDING);
  if (!IsMade(job, revision)) return view;
  if (!revision.number.valid()) {
    view.set_state(v1::SyncPolicyRevision::STATE_EFFECTIVE);
    return view;
  }
  const LoggedEntry& logged = job.log[static_cast<std::size_t>(revision.number.value() - 1)];
  std::int64_t step = 0;
  for (const auto& [worker, applied] : logged.applied) {
    (*view.mutable_effective_step_by_worker())[worker] = applied;
    step = std::max(step, applied);
  }
  if (IsEffective(job, revision.number)) {
    view.set_state(v1::SyncPolicyRevision::STATE_EFFECTIVE);
    view.set_effective_step(step);
  }
  return view;
}

v1::Job ViewOfJob(const JobState& job) {
  v1::Job view;
  *view.mutable_spec() = ToProto(job.spec);
  view.set_state(ViewOf(job.stage));
  view.set_detail(job.detail);
  view.set_epoch(job.epoch.has_value() ? job.epoch->id.value() : job.last_epoch.value());
  view.set_step(job.step());
  if (!job.policies.empty()) *view.mutable_policy() = ViewOfRevision(job, job.newest_policy());
  view.set_log_number(job.last_number().value());
  *view.mutable_create_time() = ToProto(job.create_time);
  view.set_applied_log_number(AppliedByAll(job).value());
  return view;
}

v1::Worker ViewOfWorker(const JobState& job, const WorkerState& worker) {
  v1::Worker view;
  view.set_name(worker.name);
  view.set_state(ViewOf(worker.stage));
  view.set_rank(job.RankOf(worker.name));
  view.set_incarnation(worker.incarnation.value());
  view.set_step(worker.step);
  view.set_phase(PhaseName(worker.phase));
  view.set_transport(worker.transport);
  view.set_optimizer_bytes(worker.optimizer_bytes);
  view.set_applied_log_number(AppliedBy(job, worker.name).value());
  view.mutable_metrics()->insert(worker.metrics.begin(), worker.metrics.end());
  *view.mutable_sync() = ToProto(worker.sync);
  return view;
}

v1::WatchJobResponse ViewOfAll(const JobState& job) {
  v1::WatchJobResponse view;
  *view.mutable_job() = ViewOfJob(job);
  for (const auto& [name, worker] : job.workers) *view.add_workers() = ViewOfWorker(job, worker);
  return view;
}

absl::StatusOr<v1::GetShardPlanResponse> ViewOfShardPlan(const JobState& job) {
  if (!job.epoch.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job '", job.spec.name, "' has no shard plan: no epoch runs or forms (",
                     job.detail, "); ask again when its workers attend"));
  }
  const EpochState& epoch = *job.epoch;
  v1::GetShardPlanResponse view;
  view.set_epoch(epoch.id.value());
  view.set_flat_elements(epoch.plan.flat_elements);
  view.set_digest(absl::StrFormat("%016x", epoch.plan.Digest()));
  view.set_tensors(static_cast<std::int64_t>(epoch.plan.placements.size()));
  for (std::size_t rank = 0; rank < epoch.plan.shards.size(); ++rank) {
    v1::Shard* shard = view.add_shards();
    shard->set_rank(static_cast<std::int32_t>(rank));
    if (rank < epoch.members.size()) shard->set_worker(epoch.members[rank].worker);
    shard->set_begin(epoch.plan.shards[rank].begin);
    shard->set_end(epoch.plan.shards[rank].end);
    const int buddy = BuddyOf(static_cast<int>(rank), static_cast<int>(epoch.members.size()),
                              job.spec.optimizer_replicas);
    if (buddy >= 0) shard->set_buddy(epoch.members[static_cast<std::size_t>(buddy)].worker);
  }
  view.set_optimizer_replicas(job.spec.optimizer_replicas);
  const std::optional<std::int64_t> element_bytes = ElementBytesIn(job);
  for (int replicas = 1; replicas <= kMaxOptimizerReplicas; ++replicas) {
    *view.add_replica_costs() = CostOf(epoch.plan, replicas, element_bytes);
  }
  return view;
}

}  // namespace lockstep
