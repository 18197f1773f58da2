#include "worker/engine/engine.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/digits.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/policy/model_check.h"
#include "common/policy/schedule.h"
#include "worker/engine/checkpoint_saver.h"
#include "worker/engine/joining.h"
#include "worker/engine/parameter_sync.h"
#include "worker/engine/recovering.h"
#include "worker/optim/parameter_groups.h"

namespace lockstep {
namespace {

// What this rank's gradient counts for in the sum over samples.
float WeightOf(const StepOptions& options) {
  if (options.samples == 0) return 0;
  return options.loss == LossReduction::kSum ? 1 : static_cast<float>(options.samples);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Join(const EngineOptions& options,
                                                     const OptimizerConfig& optimizer, Model* model,
                                                     TransportFactory* transports,
                                                     CoordinatorLink* link) {
  LOCKSTEP_RETURN_IF_ERROR(options.Validate());
  LOCKSTEP_ASSIGN_OR_RETURN(const Manifest manifest, model->Describe());
  LOCKSTEP_RETURN_IF_ERROR(CheckGroupsMatch(optimizer, manifest));
  return JoinWith(options, optimizer, model, transports, link, {});
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Rejoin(Engine& engine,
                                                       const EngineOptions& options,
                                                       const OptimizerConfig& optimizer,
                                                       TransportFactory* transports) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Engine> next,
                            JoinWith(options, optimizer, engine.model_, transports, engine.link_,
                                     {engine.Stop(engine.error_)}));
  next->metrics_ = engine.metrics_;
  next->applied_ = engine.applied_;
  return next;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::JoinWith(
    const EngineOptions& options, const OptimizerConfig& optimizer, Model* model,
    TransportFactory* transports, CoordinatorLink* link, HeldMemberships held) {
  const MonoTime deadline = options.Now() + options.join_timeout;
  const absl::StatusOr<Manifest> manifest = model->Describe();
  if (!manifest.ok()) {
    link->Leave(manifest.status());
    return manifest.status();
  }
  while (true) {
    absl::StatusOr<std::unique_ptr<Membership>> membership =
        JoinEpoch(options, optimizer, *manifest, transports, link,
                  held.empty() ? 0 : held.front()->commit.step(), deadline);
    if (!membership.ok()) {
      // The others of a proposed epoch need not wait for this worker's lease to end.
      link->Leave(membership.status());
      return membership.status();
    }
    std::unique_ptr<Engine> engine(new Engine(model, link, *std::move(membership), options));
    const absl::Status started = engine->Latch(engine->Start(held));
    if (started.ok()) return engine;
    if (!NextProposalMayHelp(started)) {
      engine->Leave(started);
      return started;
    }
    LogInfo("epoch ", engine->epoch().value(), " did not start (", started.message(),
            "); waiting for the next proposal");
    std::shared_ptr<Membership> tried = engine->Stop(started);
    if (!tried->commit.holding().lineage.valid()) continue;
    // Of several that were taken over the newest is kept beside the first.
    if (held.size() > 1) held.resize(1);
    held.push_back(std::move(tried));
  }
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Alone(const OptimizerConfig& optimizer,
                                                      const SyncPolicy& policy, Model* model,
                                                      const EngineOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Manifest manifest, model->Describe());
  LOCKSTEP_RETURN_IF_ERROR(CheckGroupsMatch(optimizer, manifest));
  LOCKSTEP_RETURN_IF_ERROR(CheckOperations(policy, manifest));
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Membership> membership,
                            FormAlone(optimizer, policy, manifest));
  std::unique_ptr<Engine> engine(new Engine(model, nullptr, std::move(membership), options));
  const absl::Status started = engine->Start({});
  if (started.ok()) return engine;
  engine->Leave(started);
  return started;
}

Engine::Engine(Model* model, CoordinatorLink* link, std::unique_ptr<Membership> membership,
               const EngineOptions& options)
    : model_(model),
      link_(link),
      membership_(std::move(membership)),
      revise_timeout_(options.operation_timeout),
      on_phase_(options.on_phase),
      clock_(options.clock != nullptr ? options.clock : std::make_shared<const RealClock>()),
      saver_(options.saver),
      update_(membership_.get(), options.on_phase),
      syncer_(membership_->math.get()) {
  stats_.optimizer_bytes = membership_->state_bytes();
}

Engine::~Engine() { Leave(absl::CancelledError("the worker ended without leaving")); }

absl::Status Engine::BeforeForward() {
  LOCKSTEP_RETURN_IF_ERROR(CheckMayMeet());
  Reach(StepPhase::kForward);
  return Latch(CarryOut(membership_->protocol.BeforeForward()));
}

absl::Status Engine::BeforeEvaluation() {
  LOCKSTEP_RETURN_IF_ERROR(CheckMayMeet());
  return Latch(CarryOut(membership_->protocol.BeforeEvaluation()));
}

absl::Status Engine::BeforeCheckpoint() {
  LOCKSTEP_RETURN_IF_ERROR(CheckMayMeet());
  return Latch(CarryOut(membership_->protocol.BeforeCheckpoint()));
}

absl::Status Engine::CheckMayMeet() const {
  LOCKSTEP_RETURN_IF_ERROR(error_);
  if (!announced_weight_.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "between BeforeBackward() and Step() gradients are under way and ranks can do nothing else "
      "together; call BeforeBackward() last, right before the last backward of the step");
}

absl::Status Engine::BeforeBackward(const StepOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(error_);
  LOCKSTEP_RETURN_IF_ERROR(options.Validate());
  const float weight = WeightOf(options);
  if (announced_weight_.has_value()) {
    return weight == *announced_weight_ ? absl::OkStatus() : OtherThanAnnounced(weight);
  }
  std::vector<ArenaShards> parts;
  for (const BlockArenas& block : membership_->blocks) {
    parts.push_back({block.gradients, block.shards});
  }
  LOCKSTEP_RETURN_IF_ERROR(Latch(membership_->transport->BeginReduction(parts, weight)));
  announced_weight_ = weight;
  model_->TellOfGradients([this](std::size_t placement) { GradientIsReady(placement); });
  return absl::OkStatus();
}

void Engine::GradientIsReady(std::size_t placement) {
  const ShardPlan& plan = membership_->proposal.plan;
  const Placement& parameter = plan.placements[placement];
  if (parameter.elements == 0) return;
  const std::size_t at = BlockAt(plan, parameter.offset);
  const Block& block = plan.blocks[at];
  // With the padding up to the next one.
  std::int64_t end = block.end;
  for (std::size_t next = placement + 1; next < plan.placements.size(); ++next) {
    if (plan.placements[next].elements == 0) continue;
    end = std::min(end, plan.placements[next].offset);
    break;
  }
  membership_->transport->GradientsReady(membership_->blocks[at].gradients,
                                         parameter.offset - block.begin, end - block.begin);
}

absl::Status Engine::OtherThanAnnounced(float weight) const {
  return absl::FailedPreconditionError(absl::StrCat(
      "this rank's gradient was announced before backward to count for ",
      Digits(*announced_weight_), ", and now is to count for ", Digits(weight),
      ", as the options samples and loss say; give BeforeBackward() and Step() the same"));
}

absl::Status Engine::Step(const StepOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(error_);
  LOCKSTEP_RETURN_IF_ERROR(options.Validate());
  if (announced_weight_.has_value() && WeightOf(options) != *announced_weight_) {
    return Latch(OtherThanAnnounced(WeightOf(options)));
  }
  const absl::StatusOr<Agreement> agreement = CollectAndAgree(options);
  if (!agreement.ok()) return Latch(agreement.status());
  Reach(StepPhase::kAgreed);
  const absl::Status refusal = RefusalOf(*agreement);
  if (!refusal.ok()) {
    membership_->transport->DropReduction();
    model_->ClearGradients();
    return refusal;
  }
  return Latch(Complete(*agreement));
}

absl::StatusOr<Agreement> Engine::CollectAndAgree(const StepOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const GradientBound bound, model_->CollectGradients());
  if (announced_weight_.has_value()) {
    for (const BlockArenas& block : membership_->blocks) {
      membership_->transport->GradientsReady(block.gradients, 0, block.gradients.elements);
    }
    announced_weight_.reset();
  }
  Reach(StepPhase::kCollected);
  LOCKSTEP_RETURN_IF_ERROR(LearnEntries());
  ControlWord word = membership_->protocol.Propose(options.samples);
  word.weight = WeightOf(options);
  word.largest = bound.largest;
  word.not_finite = bound.not_finite;
  word.settings = {.learning_rate = learning_rate(),
                   .max_grad_norm = options.max_grad_norm,
                   .loss_scale = options.loss_scale};
  if (saver_ != nullptr) word.saved = saver_->through_with();
  return membership_->transport->Agree(word);
}

absl::Status Engine::Complete(const Agreement& agreement) {
  LOCKSTEP_ASSIGN_OR_RETURN(stats_.last_grad_norm, update_.Apply(agreement));
  Reach(StepPhase::kApplying);
  model_->ClearGradients();

  const Revision before = revision();
  const StepOutcome outcome = membership_->protocol.Commit(agreement);
  if (revision() != before) WarnAboutPolicy(/*at_start=*/false);
  LOCKSTEP_RETURN_IF_ERROR(CarryOut(outcome.due));
  for (const AppliedEntry& entry : outcome.applied) {
    applied_.push_back(entry);
    if (link_ != nullptr) link_->ReportApplied(entry.number, entry.step);
  }
  Report(Phase::kTraining, {});
  LOCKSTEP_RETURN_IF_ERROR(SaveWhatIsDue(agreement, outcome.checkpoint));
  if (!outcome.regroup.has_value()) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(HandOverCopiesOf(outcome.regroup->drain, *membership_));
  error_ = absl::FailedPreconditionError(
      absl::StrCat("the members ended epoch ", epoch().value(), " behind step ", step(),
                   " to form another"));
  over_ = true;
  return absl::OkStatus();
}

absl::Status Engine::LearnEntries() {
  if (link_ == nullptr) return absl::OkStatus();  // RevisePolicy() learns them at once
  for (const ControlEntry& entry : link_->EntriesAfter(membership_->protocol.known())) {
    const absl::Status learned = membership_->protocol.Learn(entry);
    // The rest is asked for again once the others have caught up.
    if (absl::IsResourceExhausted(learned)) return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(learned);
  }
  return absl::OkStatus();
}

absl::Status Engine::RefusalOf(const Agreement& agreement) const {
  if (agreement.samples == 0) {
    return absl::InvalidArgumentError(
        "no rank has samples in this step, so it was refused on all ranks and nothing was "
        "changed; stop training when all data is used");
  }
  if (agreement.finite) return absl::OkStatus();
  std::vector<std::string> where;
  for (const NotFinite& each : agreement.not_finite) {
    where.push_back(absl::StrCat(
        "of parameter '", membership_->proposal.plan.placements[each.placement].name, "' on ",
        membership_->proposal.members[each.rank], " (rank ", each.rank, ")"));
  }
  const double loss_scale = agreement.settings.loss_scale;
  const std::string advice =
      loss_scale == 1 ? "Look at the loss, and leave this batch out to go on"
                      : absl::StrCat("The loss was multiplied by ", Digits(loss_scale),
                                     ": go on with a lower loss_scale");
  return absl::InvalidArgumentError(absl::StrCat(
      where.empty() ? std::string("the sum of the ranks' gradients may be too large for float32")
                    : absl::StrCat("the gradient ", ListNames(where), " is not finite"),
      "; the step was refused on all ranks and no parameter was changed. ", advice));
}

absl::Status Engine::SetLearningRate(double lr) {
  LOCKSTEP_RETURN_IF_ERROR(error_);
  for (ShardCopy& copy : membership_->copies) {
    LOCKSTEP_RETURN_IF_ERROR(copy.optimizer->SetLearningRate(lr));
  }
  return absl::OkStatus();
}

absl::Status Engine::SyncBuffers() {
  LOCKSTEP_RETURN_IF_ERROR(CheckMayMeet());
  return Latch(CarryOut(membership_->protocol.OnCommand({.buffers = true})));
}

absl::Status Engine::BroadcastBuffers(int root) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMayMeet());
  LOCKSTEP_RETURN_IF_ERROR(CheckRoot(root));
  return Latch(
      CarryOut(membership_->protocol.OnCommand({.buffers = true, .root = RootRank{root}})));
}

absl::Status Engine::BroadcastParameters(int root) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMayMeet());
  LOCKSTEP_RETURN_IF_ERROR(CheckRoot(root));
  return Latch(CarryOut(membership_->protocol.OnCommand(
      {.buffers = false, .parameters = true, .root = RootRank{root}})));
}

absl::StatusOr<BufferDrift> Engine::MeasureBufferDrift() {
  LOCKSTEP_RETURN_IF_ERROR(CheckMayMeet());
  const BufferRules& rules = membership_->protocol.rules();
  absl::StatusOr<BufferDrift> drift =
      MeasureDrift([&](absl::string_view name) { return rules.Synchronises(name); }, model_,
                   membership_->math.get(), membership_->transport.get());
  LOCKSTEP_RETURN_IF_ERROR(Latch(drift.status()));
  return drift;
}

absl::Status Engine::CarryOut(const std::vector<SyncTask>& due) {
  if (world_size() == 1) return absl::OkStatus();
  Transport* const transport = membership_->transport.get();
  for (const SyncTask& task : due) {
    switch (task.parameters) {
      case SyncTask::Parameters::kNothing:
        break;
      case SyncTask::Parameters::kBroadcast:
        LOCKSTEP_RETURN_IF_ERROR(
            BroadcastParametersFrom(task.root, membership_->blocks, model_, transport));
        break;
      case SyncTask::Parameters::kCheck:
        LOCKSTEP_RETURN_IF_ERROR(
            CheckParametersEqual(membership_->proposal.plan, membership_->blocks, model_,
                                 membership_->math.get(), transport));
        break;
    }
    if (!task.has_buffers()) continue;
    const MonoTime start = clock_->Now();
    LOCKSTEP_RETURN_IF_ERROR(syncer_.Sync(task, model_, transport, stats_.sync));
    stats_.sync_time += clock_->Now() - start;
  }
  return absl::OkStatus();
}

absl::StatusOr<Revision> Engine::RevisePolicy(const SyncPolicy& revised,
                                              const std::string& reason) {
  LOCKSTEP_RETURN_IF_ERROR(error_);
  if (link_ != nullptr) return link_->RevisePolicy(revised, reason, revise_timeout_);
  LOCKSTEP_ASSIGN_OR_RETURN(const BufferRules rules, BufferRules::Compile(revised));
  LOCKSTEP_ASSIGN_OR_RETURN(const Manifest manifest, model_->Describe());
  LOCKSTEP_RETURN_IF_ERROR(CheckPatternsMatch(rules, BufferNames(manifest)));
  LOCKSTEP_RETURN_IF_ERROR(CheckOperations(rules, manifest));
  const PolicyRevised newest = own_newest_.value_or(PolicyRevised{revision(), policy()});
  if (newest.policy == revised) return newest.revision;
  const PolicyRevised next = {newest.revision.next(), revised};
  LOCKSTEP_RETURN_IF_ERROR(
      membership_->protocol.Learn({membership_->protocol.known().next(), next}));
  own_newest_ = next;
  return next.revision;
}

absl::Status Engine::CheckRoot(int root) const {
  if (root >= 0 && root < world_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the root is rank ", root,
                                                 "; allowed is 0 to ", world_size() - 1));
}

absl::Status Engine::Latch(absl::Status status) {
  if (!status.ok() && error_.ok()) {
    error_ = status;
    membership_->transport->Abort(status);
  }
  return status;
}

void Engine::Report(Phase phase, const std::map<std::string, double>& metrics) {
  for (const auto& [name, value] : metrics) metrics_[name] = value;
  if (link_ != nullptr && !left_) link_->ReportProgress(step(), phase, metrics_, stats_.sync);
}

void Engine::Interrupt(const absl::Status& why) { membership_->transport->Abort(why); }

void Engine::Leave(const absl::Status& why) {
  if (std::exchange(left_, true)) return;
  if (link_ != nullptr) link_->OnAbort(nullptr);
  if (!why.ok()) membership_->transport->Abort(why);
  if (adopted_) model_->Release();
  if (link_ != nullptr) link_->Leave(why);
  if (error_.ok()) error_ = absl::FailedPreconditionError("this worker has left the epoch");
}

int Engine::rank() const { return membership_->rank; }
int Engine::world_size() const { return membership_->world_size(); }
Epoch Engine::epoch() const { return membership_->proposal.epoch; }
std::int64_t Engine::step() const { return membership_->protocol.step(); }
std::int64_t Engine::samples() const { return membership_->commit.samples(); }
double Engine::learning_rate() const { return membership_->own().optimizer->learning_rate(); }
Revision Engine::revision() const { return membership_->protocol.revision(); }
const SyncPolicy& Engine::policy() const { return membership_->protocol.policy(); }

}  // namespace lockstep
