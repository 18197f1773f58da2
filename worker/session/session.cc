#include "worker/session/session.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "c10/core/GradMode.h"
#include "common/base/status_macros.h"
#include "worker/agent/grpc_link.h"
#include "worker/agent/incarnation.h"
#include "worker/session/transports.h"
#include "worker/torch/module_model.h"
#include "worker/torch/named_tensors.h"

namespace lockstep {
namespace {

absl::StatusOr<std::unique_ptr<CoordinatorLink>> Attend(const SessionOptions& options,
                                                        Manifest manifest,
                                                        const OptimizerConfig& optimizer) {
  manifest.optimizer = Describe(optimizer);
  return ConnectToCoordinator(
      {.address = options.coordinator, .connect_timeout = options.join_timeout},
      {.job = options.job,
       .worker = options.worker,
       .incarnation = NewIncarnation(),
       .manifest = std::move(manifest),
       .transport = options.transport});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Join(const SessionOptions& options,
                                                       torch::nn::Module& module,
                                                       const OptimizerConfig& optimizer) {
  return JoinWith(options, std::make_unique<ModuleModel>(TensorsOf(module)), optimizer);
}

absl::StatusOr<std::unique_ptr<Session>> Session::Join(const SessionOptions& options,
                                                       torch::jit::Module& module,
                                                       const OptimizerConfig& optimizer) {
  return JoinWith(options, std::make_unique<ModuleModel>(TensorsOf(module)), optimizer);
}

absl::StatusOr<std::unique_ptr<Session>> Session::JoinWith(const SessionOptions& options,
                                                           std::unique_ptr<Model> model,
                                                           const OptimizerConfig& optimizer) {
  LOCKSTEP_RETURN_IF_ERROR(options.Validate());
  LOCKSTEP_RETURN_IF_ERROR(Validate(optimizer));
  LOCKSTEP_ASSIGN_OR_RETURN(Manifest manifest, model->Describe());
  std::unique_ptr<Session> session(new Session());
  session->model_ = std::move(model);
  if (options.coordinator.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(session->engine_,
                              Engine::Alone(optimizer, options.policy, session->model_.get()));
    return session;
  }
  const absl::Time deadline = absl::Now() + options.join_timeout;
  session->transports_ = MakeTransports(options);
  LOCKSTEP_ASSIGN_OR_RETURN(session->link_, Attend(options, std::move(manifest), optimizer));
  const EngineOptions engine_options = {
      .worker = options.worker,
      .join_timeout = std::max(deadline - absl::Now(), absl::Milliseconds(1)),
      .operation_timeout = options.operation_timeout,
  };
  LOCKSTEP_ASSIGN_OR_RETURN(
      session->engine_, Engine::Join(engine_options, optimizer, session->model_.get(),
                                     session->transports_.get(), session->link_.get()));
  return session;
}

Session::~Session() = default;

absl::Status Session::BeforeForward() {
  if (no_sync_ > 0 || !c10::GradMode::is_enabled()) return absl::OkStatus();
  return engine_->BeforeForward();
}

absl::Status Session::BeforeEvaluation() { return engine_->BeforeEvaluation(); }

absl::Status Session::Step(const StepOptions& options) { return engine_->Step(options); }

absl::Status Session::BroadcastBuffers(int root) { return engine_->BroadcastBuffers(root); }

absl::Status Session::BroadcastParameters(int root) { return engine_->BroadcastParameters(root); }

absl::StatusOr<BufferDrift> Session::MeasureBufferDrift() { return engine_->MeasureBufferDrift(); }

void Session::Report(Phase phase, const std::map<std::string, double>& metrics) {
  engine_->Report(phase, metrics);
}

void Session::Leave(const absl::Status& why) { engine_->Leave(why); }

}  // namespace lockstep
