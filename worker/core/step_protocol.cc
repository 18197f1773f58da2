#include "worker/core/step_protocol.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace lockstep {

bool SyncTask::has_buffers() const {
  return std::any_of(buffers.begin(), buffers.end(),
                     [](const std::optional<BufferSync>& sync) { return sync.has_value(); });
}

absl::StatusOr<StepProtocol> StepProtocol::Create(std::vector<std::string> members,
                                                  LogNumber log_number, Revision revision,
                                                  SyncPolicy policy) {
  LOCKSTEP_ASSIGN_OR_RETURN(BufferRules rules, BufferRules::Compile(policy));
  StepProtocol protocol(std::move(members), log_number);
  protocol.PutInForce({revision, std::move(policy)},
                      std::make_shared<const BufferRules>(std::move(rules)));
  return protocol;
}

StepProtocol::StepProtocol(std::vector<std::string> members, LogNumber log_number)
    : members_(std::move(members)),
      known_(log_number),
      applied_(log_number),
      samples_(members_.size(), 0) {}

void StepProtocol::PutInForce(const PolicyRevised& revised,
                              std::shared_ptr<const BufferRules> rules) {
  now_.revision = revised.revision;
  now_.policy = revised.policy;
  now_.samples_then.assign(rules->treatments().size(), samples_);
  now_.rules = std::move(rules);
}

absl::Status StepProtocol::Learn(const ControlEntry& entry) {
  if (entry.number <= known_) return absl::OkStatus();
  if (entry.number != known_.next()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "control entry ", entry.number.value(), " came behind ", known_.value(),
        "; entries must come one by one, so ", known_.next().value(), " was expected"));
  }
  if (pending_.size() >= kMaxPendingEntries) {
    return absl::ResourceExhaustedError(absl::StrCat(
        kMaxPendingEntries, " control entries wait for the other ranks, which is the limit; "
        "learn entry ", entry.number.value(), " after a later step"));
  }
  PendingEntry pending = {.entry = entry};
  if (const auto* revised = std::get_if<PolicyRevised>(&entry.decision)) {
    LOCKSTEP_ASSIGN_OR_RETURN(BufferRules rules, BufferRules::Compile(revised->policy));
    pending.rules = std::make_shared<const BufferRules>(std::move(rules));
  }
  pending_.push_back(std::move(pending));
  known_ = entry.number;
  return absl::OkStatus();
}

std::vector<SyncTask> StepProtocol::AtStart() {
  std::vector<SyncTask> due;
  if (policy().broadcast_parameters_at_start) {
    due.push_back(ParameterTask(SyncTask::Parameters::kBroadcast, policy().root));
  }
  // Whatever the operation: a start makes replicas equal to one that is right.
  SyncTask buffers = BufferTask([&](std::size_t i) -> std::optional<BufferSync> {
    const Treatment& treatment = now_.rules->treatments()[i];
    if (!IsDue(policy().broadcast_buffers, treatment.schedule, Moment::kStart)) return std::nullopt;
    return BufferSync{.root = ResolveRoot(treatment.root, members_).rank};
  });
  if (buffers.has_buffers()) due.push_back(std::move(buffers));
  return due;
}

std::vector<SyncTask> StepProtocol::BeforeForward() {
  if (std::exchange(forward_seen_, true)) return {};
  return At(Moment::kForward, ++forwards_);
}

std::vector<SyncTask> StepProtocol::BeforeEvaluation() { return At(Moment::kEvaluation, 0); }

std::vector<SyncTask> StepProtocol::BeforeCheckpoint() { return At(Moment::kCheckpoint, 0); }

std::vector<SyncTask> StepProtocol::OnCommand(const SyncOnce& what) {
  std::vector<SyncTask> due;
  if (what.parameters) {
    due.push_back(
        ParameterTask(SyncTask::Parameters::kBroadcast, what.root.value_or(policy().root)));
  }
  if (what.buffers) {
    due.push_back(BufferTask([&](std::size_t i) -> std::optional<BufferSync> {
      if (!what.root) return AsTreated(i);
      return BufferSync{.root = ResolveRoot(*what.root, members_).rank};
    }));
  }
  return due;
}

std::vector<SyncTask> StepProtocol::At(Moment moment, std::int64_t count) {
  SyncTask task = BufferTask([&](std::size_t i) -> std::optional<BufferSync> {
    const Schedule& schedule = now_.rules->treatments()[i].schedule;
    if (!IsDue(policy().broadcast_buffers, schedule, moment, count)) return std::nullopt;
    return AsTreated(i);
  });
  if (!task.has_buffers()) return {};
  return {std::move(task)};
}

template <typename Choose>
SyncTask StepProtocol::BufferTask(Choose choose) {
  SyncTask task = {.rules = now_.rules, .skip_unchanged = policy().skip_unchanged};
  const std::vector<Treatment>& treatments = now_.rules->treatments();
  task.buffers.resize(treatments.size());
  for (std::size_t i = 0; i < treatments.size(); ++i) {
    if (treatments[i].operation == Operation::kNone) continue;
    task.buffers[i] = choose(i);
    if (task.buffers[i]) now_.samples_then[i] = samples_;
  }
  return task;
}

SyncTask StepProtocol::ParameterTask(SyncTask::Parameters what, const Root& root) const {
  return {.rules = now_.rules, .parameters = what, .root = ResolveRoot(root, members_).rank};
}

BufferSync StepProtocol::AsTreated(std::size_t treatment) const {
  const Treatment& rule = now_.rules->treatments()[treatment];
  BufferSync sync = {.operation = rule.operation,
                     .root = ResolveRoot(rule.root, members_).rank};
  if (rule.operation == Operation::kMeanBySamples) {
    for (std::size_t rank = 0; rank < samples_.size(); ++rank) {
      sync.samples.push_back(samples_[rank] - now_.samples_then[treatment][rank]);
    }
  }
  return sync;
}

ControlWord StepProtocol::Propose(std::int64_t samples) const {
  return {.step = step_ + 1, .log_number = known_.value(), .samples = samples};
}

StepOutcome StepProtocol::Commit(const Agreement& agreement) {
  // This rank's own word is one of those whose minimum was taken.
  LOCKSTEP_CHECK(agreement.log_number <= known_);
  ++step_;
  forward_seen_ = false;
  for (std::size_t rank = 0; rank < agreement.samples_by_rank.size(); ++rank) {
    std::int64_t& sum = samples_[rank];
    if (__builtin_add_overflow(sum, agreement.samples_by_rank[rank], &sum)) {
      sum = std::numeric_limits<std::int64_t>::max();
    }
  }
  StepOutcome outcome = {.step = step_};
  if (IsDueEvery(policy().broadcast_parameters_every_steps, step_)) {
    outcome.due.push_back(ParameterTask(SyncTask::Parameters::kBroadcast, policy().root));
  }
  if (IsDueEvery(policy().check_parameters_every_steps, step_)) {
    outcome.due.push_back(ParameterTask(SyncTask::Parameters::kCheck, policy().root));
  }
  for (SyncTask& task : At(Moment::kStep, step_)) outcome.due.push_back(std::move(task));
  while (!pending_.empty() && pending_.front().entry.number <= agreement.log_number &&
         !outcome.regroup) {
    const PendingEntry& pending = pending_.front();
    Apply(pending, outcome);
    applied_ = pending.entry.number;
    outcome.applied.push_back({.number = applied_,
                               .revision = pending.rules ? revision() : Revision(),
                               .step = step_});
    pending_.pop_front();
  }
  return outcome;
}

void StepProtocol::Apply(const PendingEntry& pending, StepOutcome& outcome) {
  const Decision& decision = pending.entry.decision;
  if (const auto* revised = std::get_if<PolicyRevised>(&decision)) {
    PutInForce(*revised, pending.rules);
  } else if (const auto* once = std::get_if<SyncOnce>(&decision)) {
    for (SyncTask& task : OnCommand(*once)) outcome.due.push_back(std::move(task));
  } else if (const auto* regroup = std::get_if<Regroup>(&decision)) {
    outcome.regroup = *regroup;
  } else if (std::holds_alternative<CheckpointOnce>(decision)) {
    outcome.checkpoint = true;
  }
}

}  // namespace lockstep
