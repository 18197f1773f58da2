#include "worker/session/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "c10/core/GradMode.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/agent/grpc_link.h"
#include "worker/agent/incarnation.h"
#include "worker/checkpoint/file_system.h"
#include "worker/engine/checkpoint_saver.h"
#include "worker/optim/parameter_groups.h"
#include "worker/session/data_plane.h"
#include "worker/torch/module_model.h"
#include "worker/torch/named_tensors.h"

namespace lockstep {
namespace {

absl::StatusOr<std::unique_ptr<CoordinatorLink>> Attend(const SessionOptions& options,
                                                        Manifest manifest,
                                                        const OptimizerConfig& optimizer) {
  manifest.optimizer = Describe(optimizer);
  return ConnectToCoordinator(
      {.address = options.coordinator,
       .tls = options.tls,
       .connect_timeout = options.join_timeout},
      {.job = options.job,
       .worker = options.worker,
       .incarnation = NewIncarnation(),
       .manifest = std::move(manifest),
       .transport = options.transport});
}

std::shared_ptr<CheckpointSaver> SaverOf(const SessionOptions& options) {
  if (options.checkpoints.directory.empty()) return nullptr;
  CheckpointOptions checkpoints = options.checkpoints;
  checkpoints.job = options.job.empty() ? "alone" : options.job;
  return std::make_shared<CheckpointSaver>(std::move(checkpoints), &HostFileSystem());
}

EngineOptions EngineOptionsOf(const SessionOptions& options) {
  return {.worker = options.worker,
          .join_timeout = options.join_timeout,
          .operation_timeout = options.operation_timeout,
          .saver = SaverOf(options),
          .on_phase = options.on_phase};
}

const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

constexpr absl::string_view kRepeat = "lockstep/repeat-step";

absl::Status ToBeRepeated(const absl::Status& why, const Engine& engine) {
  absl::Status status = absl::AbortedError(absl::StrCat(
      "the step behind step ", engine.step(), " was not taken, since ", why.message(),
      "; take it anew as rank ", engine.rank(), " of ", engine.world_size(), " in epoch ",
      engine.epoch().value()));
  status.SetPayload(kRepeat, absl::Cord());
  return status;
}

absl::StatusOr<std::unique_ptr<NamedTensors>> AllTensorsOf(
    std::unique_ptr<NamedTensors> trained, const std::vector<AttachedModule>& attached) {
  std::vector<Attachment> attachments;
  for (const AttachedModule& second : attached) {
    if (second.module == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the module attached as ", Quoted(second.prefix), " is null"));
    }
    attachments.push_back({second.prefix, TensorsOf(*second.module)});
  }
  return Attach(std::move(trained), std::move(attachments));
}

}  // namespace

bool MustRepeat(const absl::Status& status) { return status.GetPayload(kRepeat).has_value(); }

absl::StatusOr<std::unique_ptr<Session>> Session::Join(
    const SessionOptions& options, torch::nn::Module& module, const OptimizerConfig& optimizer,
    const std::vector<AttachedModule>& attached) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<NamedTensors> tensors,
                            AllTensorsOf(TensorsOf(module), attached));
  return JoinWith(options, std::move(tensors), optimizer);
}

absl::StatusOr<std::unique_ptr<Session>> Session::Join(
    const SessionOptions& options, torch::jit::Module& module, const OptimizerConfig& optimizer,
    const std::vector<AttachedModule>& attached) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<NamedTensors> tensors,
                            AllTensorsOf(TensorsOf(module), attached));
  return JoinWith(options, std::move(tensors), optimizer);
}

absl::StatusOr<std::unique_ptr<Session>> Session::JoinWith(const SessionOptions& options,
                                                           std::unique_ptr<NamedTensors> tensors,
                                                           const OptimizerConfig& optimizer) {
  LOCKSTEP_RETURN_IF_ERROR(options.Validate());
  LOCKSTEP_ASSIGN_OR_RETURN(DataPlane plane, MakeDataPlane(options));
  auto model = std::make_unique<ModuleModel>(std::move(tensors), plane.device);
  LOCKSTEP_ASSIGN_OR_RETURN(Manifest manifest, model->Describe());
  LOCKSTEP_RETURN_IF_ERROR(CheckGroupsMatch(optimizer, manifest));
  if (options.coordinator.empty()) {
    std::unique_ptr<Session> session(new Session());
    session->model_ = std::move(model);
    LOCKSTEP_ASSIGN_OR_RETURN(session->engine_,
                              Engine::Alone(optimizer, options.policy, session->model_.get(),
                                            EngineOptionsOf(options)));
    MutexLock lock(&session->mu_);
    session->interruptible_ = session->engine_.get();
    return session;
  }
  const absl::Time deadline = absl::Now() + options.join_timeout;
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorLink> link,
                            Attend(options, std::move(manifest), optimizer));
  EngineOptions engine_options = EngineOptionsOf(options);
  engine_options.join_timeout = std::max(deadline - absl::Now(), absl::Milliseconds(1));
  engine_options.math = std::move(plane.math);
  return JoinEpoch(std::move(link), std::move(plane.transports), engine_options,
                   options.rejoin_timeout, std::move(model), optimizer);
}

absl::StatusOr<std::unique_ptr<Session>> Session::JoinBy(
    std::unique_ptr<CoordinatorLink> link, std::shared_ptr<TransportFactory> transports,
    const SessionOptions& options, torch::nn::Module& module, const OptimizerConfig& optimizer,
    const std::vector<AttachedModule>& attached) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<NamedTensors> tensors,
                            AllTensorsOf(TensorsOf(module), attached));
  return JoinEpoch(std::move(link), std::move(transports), EngineOptionsOf(options),
                   options.rejoin_timeout, std::make_unique<ModuleModel>(std::move(tensors)),
                   optimizer);
}

absl::StatusOr<std::unique_ptr<Session>> Session::JoinEpoch(
    std::unique_ptr<CoordinatorLink> link, std::shared_ptr<TransportFactory> transports,
    const EngineOptions& options, absl::Duration rejoin_timeout, std::unique_ptr<Model> model,
    const OptimizerConfig& optimizer) {
  std::unique_ptr<Session> session(new Session());
  session->model_ = std::move(model);
  session->transports_ = std::move(transports);
  session->link_ = std::move(link);
  LOCKSTEP_ASSIGN_OR_RETURN(
      session->engine_, Engine::Join(options, optimizer, session->model_.get(),
                                     session->transports_.get(), session->link_.get()));
  session->options_ = options;
  session->options_.join_timeout = rejoin_timeout;
  session->optimizer_ = optimizer;
  MutexLock lock(&session->mu_);
  session->interruptible_ = session->engine_.get();
  return session;
}

Session::~Session() = default;

template <typename Call>
auto Session::Collective(Call call) -> decltype(call()) {
  auto result = call();
  if (result.ok() || !engine_->CanRejoin()) return result;
  const absl::Status why = StatusOf(result);
  const absl::Status rejoined = Rejoin(why);
  if (!rejoined.ok()) return rejoined;
  return ToBeRepeated(why, *engine_);
}

absl::Status Session::Rejoin(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    if (!interrupted_.ok() || options_.join_timeout <= absl::ZeroDuration()) return why;
    interruptible_ = nullptr;
  }
  if (!why.ok()) LogWarning("epoch ", epoch().value(), " was lost: ", why.message());
  const Epoch last = epoch();
  absl::StatusOr<std::unique_ptr<Engine>> next =
      Engine::Rejoin(*engine_, options_, optimizer_, transports_.get());
  if (!next.ok()) {
    return absl::Status(next.status().code(),
                        absl::StrCat(next.status().message(), why.ok() ? "" : "; after: ",
                                     why.message()));
  }
  engine_ = *std::move(next);
  LogInfo("epoch ", epoch().value(), " follows epoch ", last.value(), ": rank ", rank(), " of ",
          world_size(), ", behind step ", step());
  MutexLock lock(&mu_);
  interruptible_ = engine_.get();
  if (!interrupted_.ok()) engine_->Interrupt(interrupted_);
  return absl::OkStatus();
}

absl::Status Session::BeforeForward() {
  if (no_sync_ > 0 || !c10::GradMode::is_enabled()) return absl::OkStatus();
  return Collective([&] { return engine_->BeforeForward(); });
}

absl::Status Session::BeforeEvaluation() {
  return Collective([&] { return engine_->BeforeEvaluation(); });
}

absl::Status Session::BeforeCheckpoint() {
  return Collective([&] { return engine_->BeforeCheckpoint(); });
}

absl::Status Session::BeforeBackward(const StepOptions& options) {
  return Collective([&] { return engine_->BeforeBackward(options); });
}

absl::Status Session::Step(const StepOptions& options) {
  const std::int64_t before = step();
  const absl::Status taken = Collective([&] { return engine_->Step(options); });
  if (MustRepeat(taken) && step() > before) return absl::OkStatus();
  if (taken.ok() && engine_->epoch_is_over()) return Rejoin(absl::OkStatus());
  return taken;
}

absl::Status Session::SetLearningRate(double lr) { return engine_->SetLearningRate(lr); }

absl::Status Session::SaveCheckpoint() {
  return Collective([&] { return engine_->SaveCheckpoint(); });
}

absl::Status Session::SyncBuffers() {
  return Collective([&] { return engine_->SyncBuffers(); });
}

absl::Status Session::BroadcastBuffers(int root) {
  return Collective([&] { return engine_->BroadcastBuffers(root); });
}

absl::Status Session::BroadcastParameters(int root) {
  return Collective([&] { return engine_->BroadcastParameters(root); });
}

absl::StatusOr<BufferDrift> Session::MeasureBufferDrift() {
  return Collective([&] { return engine_->MeasureBufferDrift(); });
}

absl::StatusOr<Revision> Session::RevisePolicy(const SyncPolicy& policy,
                                               const std::string& reason) {
  return engine_->RevisePolicy(policy, reason);
}

void Session::Report(Phase phase, const std::map<std::string, double>& metrics) {
  engine_->Report(phase, metrics);
}

void Session::Interrupt(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (interrupted_.ok()) interrupted_ = why;
  if (interruptible_ != nullptr) {
    interruptible_->Interrupt(why);
  } else if (link_ != nullptr) {
    link_->Leave(why);
  }
}

void Session::Leave(const absl::Status& why) { engine_->Leave(why); }

}  // namespace lockstep
