#include "worker/core/step_protocol.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/policy/schedule.h"

namespace lockstep {

absl::StatusOr<StepProtocol> StepProtocol::Create(std::vector<std::string> members,
                                                  LogNumber log_number, Revision revision,
                                                  SyncPolicy policy) {
  LOCKSTEP_ASSIGN_OR_RETURN(BufferSelector selector, BufferSelector::Compile(policy));
  return StepProtocol(std::move(members), log_number, revision, std::move(policy),
                      std::move(selector));
}

StepProtocol::StepProtocol(std::vector<std::string> members, LogNumber log_number,
                           Revision revision, SyncPolicy policy, BufferSelector selector)
    : members_(std::move(members)),
      known_(log_number),
      applied_(log_number),
      revision_(revision),
      policy_(std::move(policy)),
      selector_(std::make_shared<const BufferSelector>(std::move(selector))) {}

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
  if (const auto* revised = std::get_if<PolicyRevised>(&entry.decision)) {
    LOCKSTEP_RETURN_IF_ERROR(BufferSelector::Compile(revised->policy).status());
  }
  pending_.push_back(entry);
  known_ = entry.number;
  return absl::OkStatus();
}

std::vector<SyncTask> StepProtocol::AtStart() const {
  const bool buffers = BufferSyncDueAtStart(policy_);
  const bool parameters = policy_.broadcast_parameters_at_start;
  if (!buffers && !parameters) return {};
  return {TaskFor(buffers, parameters, policy_.root)};
}

std::vector<SyncTask> StepProtocol::BeforeForward() {
  if (std::exchange(forward_seen_, true)) return {};
  ++forwards_;
  if (!BufferSyncDueBeforeForward(policy_, forwards_)) return {};
  return {TaskFor(/*buffers=*/true, /*parameters=*/false, policy_.root)};
}

std::vector<SyncTask> StepProtocol::BeforeEvaluation() const {
  if (!BufferSyncDueBeforeEvaluation(policy_)) return {};
  return {TaskFor(/*buffers=*/true, /*parameters=*/false, policy_.root)};
}

ControlWord StepProtocol::Propose(std::int64_t samples) const {
  return {.step = step_ + 1, .log_number = known_.value(), .samples = samples};
}

StepOutcome StepProtocol::Commit(const Agreement& agreement) {
  // This rank's own word is one of those whose minimum was taken.
  LOCKSTEP_CHECK(agreement.log_number <= known_);
  ++step_;
  forward_seen_ = false;
  StepOutcome outcome = {.step = step_};
  if (BufferSyncDueAfterStep(policy_, step_)) {
    outcome.due.push_back(TaskFor(/*buffers=*/true, /*parameters=*/false, policy_.root));
  }
  while (!pending_.empty() && pending_.front().number <= agreement.log_number) {
    const ControlEntry& entry = pending_.front();
    Apply(entry, outcome.due);
    applied_ = entry.number;
    const bool is_revision = std::holds_alternative<PolicyRevised>(entry.decision);
    outcome.applied.push_back(
        {.number = applied_, .revision = is_revision ? revision_ : Revision(), .step = step_});
    pending_.pop_front();
  }
  return outcome;
}

void StepProtocol::Apply(const ControlEntry& entry, std::vector<SyncTask>& due) {
  if (const auto* revised = std::get_if<PolicyRevised>(&entry.decision)) {
    auto selector = BufferSelector::Compile(revised->policy);
    LOCKSTEP_CHECK(selector.ok());  // Learn() compiled the same policy
    policy_ = revised->policy;
    revision_ = revised->revision;
    selector_ = std::make_shared<const BufferSelector>(*std::move(selector));
  } else if (const auto* once = std::get_if<SyncOnce>(&entry.decision)) {
    if (once->buffers || once->parameters) {
      due.push_back(TaskFor(once->buffers, once->parameters, once->root));
    }
  }
}

SyncTask StepProtocol::TaskFor(bool buffers, bool parameters, const Root& root) const {
  return {.buffers = buffers,
          .parameters = parameters,
          .root = ResolveRoot(root, members_).rank,
          .selector = selector_};
}

}  // namespace lockstep
