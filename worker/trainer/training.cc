#include "worker/trainer/training.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/core/Reduction.h"
#include "ATen/ops/argmax.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "c10/core/Device.h"
#include "c10/core/GradMode.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/mono_time.h"
#include "common/base/status_macros.h"
#include "common/policy/sync_policy.h"
#include "torch/utils.h"
#include "worker/session/session.h"
#include "worker/torch/cuda_library.h"
#include "worker/torch/guard.h"
#include "worker/trainer/batch.h"
#include "worker/trainer/classifier.h"
#include "worker/trainer/mnist.h"
#include "worker/trainer/report.h"
#include "worker/trainer/sampler.h"
#include "worker/trainer/tensor_digest.h"

namespace lockstep {
namespace {

constexpr std::int64_t kStepsPerLoss = 10;
constexpr std::int64_t kEvaluationBatch = 500;

// Where model and batches are.
c10::Device DeviceOf(const SessionOptions& session) {
  if (session.coordinator.empty() || session.transport != "nccl") return c10::kCPU;
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(session.gpu)};
}

// One run, with what it needs and what it has found out so far.
class Training {
 public:
  Training(const TrainingOptions& options, LabeledImages train, LabeledImages test,
           Classifier* classifier, Session* session, const StopRequest& stop,
           TrainingMonitor* monitor)
      : options_(options),
        train_(std::move(train)),
        test_(std::move(test)),
        classifier_(classifier),
        session_(session),
        stop_(stop),
        monitor_(monitor),
        device_(DeviceOf(options.session)),
        sampler_(train_.size(), options.batch, options.seed) {}

  // Every step, and what is due between steps.
  absl::Status Run() {
    last_step_at_ = clock_.Now();
    bool finished = false;
    while (!finished) {
      LOCKSTEP_RETURN_IF_ERROR(NoteEpoch());
      if (const int signal = stop_.signal(); signal != 0) {
        return absl::CancelledError(
            absl::StrCat("stopped by signal ", signal, " after step ", session_->step()));
      }
      const absl::StatusOr<bool> moved_on = MoveOn();
      if (moved_on.ok()) {
        finished = !*moved_on;
      } else if (!MustRepeat(moved_on.status())) {
        return moved_on.status();
      }
    }
    return WriteReport();
  }

 private:
  // What is known by now.
  absl::Status WriteReport() {
    return options_.report.empty() ? absl::OkStatus()
                                   : WriteFile(options_.report, ToJson(Summarise()));
  }

  TrainingReport Summarise() {
    const EngineStats stats = session_->stats();
    report_.rank = session_->rank();
    report_.worker = options_.session.worker;
    report_.world_size = session_->world_size();
    report_.transport = options_.session.coordinator.empty() ? "none" : options_.session.transport;
    report_.steps = session_->step();
    report_.seconds = absl::ToDoubleSeconds(training_time_);
    report_.buffer_digest = DigestOf(classifier_->Tensors()->Buffers());
    report_.switches.clear();
    for (const AppliedEntry& entry : session_->applied()) {
      if (!entry.revision.valid()) continue;
      report_.switches.push_back({entry.revision.value(), entry.number.value(), entry.step});
    }
    report_.parameter_digest = DigestOf(classifier_->Tensors()->Parameters());
    report_.optimizer_bytes = stats.optimizer_bytes;
    report_.sync = stats.sync;
    report_.revision = session_->revision().value();
    return report_;
  }

  // If an epoch has begun. The report is written then, too: a worker that is killed leaves it.
  absl::Status NoteEpoch() {
    if (!report_.epochs.empty() && report_.epochs.back().epoch == session_->epoch().value()) {
      return absl::OkStatus();
    }
    // What is due behind the last step all do together, also who had done it before.
    measured_at_ = evaluated_at_ = -1;
    report_.epochs.push_back({.epoch = session_->epoch().value(),
                              .step = session_->step(),
                              .samples = session_->samples(),
                              .rank = session_->rank(),
                              .world_size = session_->world_size(),
                              .parameter_digest =
                                  DigestOf(classifier_->Tensors()->Parameters())});
    SetLogFields({.job = options_.session.job,
                  .epoch = session_->epoch().value(),
                  .rank = session_->rank()});
    Watch();
    LogInfo("training as rank ", session_->rank(), " of ", session_->world_size(),
            " behind step ", session_->step(), ", ", options_.batch,
            " images of each rank in each step, policy revision ", session_->revision().value());
    return WriteReport();
  }

  bool IsDone() const {
    return session_->samples() >= options_.epochs * sampler_.images() ||
           (options_.steps > 0 && session_->step() >= options_.steps);
  }

  // What is due behind the last step, then the next one; false: there is none.
  absl::StatusOr<bool> MoveOn() {
    const std::int64_t step = session_->step();
    const bool done = IsDone();
    if (step > 0 && options_.drift_every > 0 && step % options_.drift_every == 0 &&
        measured_at_ != step) {
      LOCKSTEP_RETURN_IF_ERROR(MeasureDrift());
      measured_at_ = step;
    }
    const bool evaluates = done || options_.evaluate_at.contains(step) ||
                           (step > 0 && options_.evaluate_every > 0 &&
                            step % options_.evaluate_every == 0);
    if (evaluates && evaluated_at_ != step) {
      LOCKSTEP_RETURN_IF_ERROR(Evaluate());
      evaluated_at_ = step;
    }
    if (!done) {
      LOCKSTEP_RETURN_IF_ERROR(TakeStep());
    } else if (!options_.session.checkpoints.directory.empty()) {
      LOCKSTEP_RETURN_IF_ERROR(session_->SaveCheckpoint());
    }
    return !done;
  }

  absl::Status TakeStep() {
    const MonoTime start = clock_.Now();
    const Revision before = session_->revision();
    const std::span<const std::int64_t> indices =
        sampler_.Batch(session_->samples(), session_->rank());
    const auto samples = static_cast<std::int64_t>(indices.size());
    LOCKSTEP_RETURN_IF_ERROR(session_->BeforeForward());
    at::Tensor loss;  // not defined: no data left
    if (samples > 0) {
      const Batch batch = MakeBatch(train_, indices, device_);
      loss = at::cross_entropy_loss(classifier_->Forward(batch.images), batch.labels);
    }
    const StepOptions step = {.samples = samples};
    LOCKSTEP_RETURN_IF_ERROR(session_->BeforeBackward(step));
    if (loss.defined()) {
      loss.backward();
      loss_ = loss.item<double>();
    }
    LOCKSTEP_RETURN_IF_ERROR(session_->Step(step));
    const MonoTime end = clock_.Now();
    monitor_->times().EndStep(end);
    training_time_ += end - start;
    report_.images += samples;
    LOCKSTEP_RETURN_IF_ERROR(NoteEpoch());
    Note(before);
    return absl::OkStatus();
  }

  // What the step just taken adds to the report, here and at the coordinator.
  void Note(Revision before) {
    const MonoTime now = clock_.Now();
    std::optional<double>& stall = report_.epochs.back().stall_seconds;
    if (!stall.has_value()) stall = absl::ToDoubleSeconds(now - last_step_at_);
    last_step_at_ = now;
    const std::int64_t step = session_->step();
    if (step == 1 || step % kStepsPerLoss == 0) report_.losses.push_back({step, loss_});
    if (session_->revision() != before) {
      LogInfo("policy revision ", session_->revision().value(), " in force behind step ", step,
              ": ", Describe(session_->policy()));
    }
    Report(Phase::kTraining);
  }

  std::map<std::string, double> Metrics() const {
    const double seconds = absl::ToDoubleSeconds(training_time_);
    std::map<std::string, double> metrics = {
        {"loss", loss_},
        {"images_per_second", seconds > 0 ? report_.images / seconds : 0},
        {"revision", static_cast<double>(session_->revision().value())}};
    if (!report_.drift.empty()) metrics["drift"] = report_.drift.back().largest;
    return metrics;
  }

  // Tells those who watch where this worker is.
  void Watch() {
    const EngineStats stats = session_->stats();
    monitor_->Set(TrainingStatus{
        .epoch = session_->epoch().value(),
        .rank = session_->rank(),
        .world_size = session_->world_size(),
        .step = session_->step(),
        .revision = session_->revision().value(),
        .recoveries = static_cast<std::int64_t>(report_.epochs.size()) - 1,
        .sync = stats.sync,
        .sync_time = stats.sync_time,
        .optimizer_bytes = stats.optimizer_bytes,
        .reported = Metrics()});
  }

  // Tells the coordinator, too, what it does and how it is doing.
  void Report(Phase phase) {
    session_->Report(phase, Metrics());
    Watch();
  }

  absl::Status MeasureDrift() {
    LOCKSTEP_ASSIGN_OR_RETURN(const BufferDrift drift, session_->MeasureBufferDrift());
    report_.drift.push_back({session_->step(), drift.largest, drift.buffer});
    return absl::OkStatus();
  }

  absl::Status Evaluate() {
    Report(Phase::kEvaluating);
    LOCKSTEP_RETURN_IF_ERROR(session_->BeforeEvaluation());
    const c10::AutoGradMode no_grad(false);
    classifier_->SetTraining(false);
    double loss = 0;
    std::int64_t correct = 0;
    for (std::int64_t begin = 0; begin < test_.size(); begin += kEvaluationBatch) {
      std::vector<std::int64_t> numbers(std::min(kEvaluationBatch, test_.size() - begin));
      std::iota(numbers.begin(), numbers.end(), begin);
      const Batch batch = MakeBatch(test_, numbers, device_);
      const at::Tensor scores = classifier_->Forward(batch.images);
      loss += at::cross_entropy_loss(scores, batch.labels, {}, at::Reduction::Sum).item<double>();
      correct += scores.argmax(1).eq(batch.labels).sum().item<std::int64_t>();
    }
    classifier_->SetTraining(true);
    const auto images = static_cast<double>(test_.size());
    report_.evaluations.push_back(
        {session_->step(), static_cast<double>(correct) / images, loss / images});
    LogInfo(absl::StrFormat("step %d: test accuracy %.2f %%, loss %.4f", session_->step(),
                            100 * static_cast<double>(correct) / images, loss / images));
    return absl::OkStatus();
  }

  const TrainingOptions& options_;
  const LabeledImages train_;
  const LabeledImages test_;
  Classifier* const classifier_;
  Session* const session_;
  const StopRequest& stop_;
  TrainingMonitor* const monitor_;
  const c10::Device device_;
  Sampler sampler_;
  std::int64_t measured_at_ = -1;   // the step behind which drift was measured last
  std::int64_t evaluated_at_ = -1;  // and test accuracy
  double loss_ = 0;  // of the last batch that was not empty
  const RealClock clock_;
  absl::Duration training_time_;
  MonoTime last_step_at_;  // when it was taken; at first: when training began
  TrainingReport report_;
};

// Measures steps; with --end-at: the process ends where it says.
SessionOptions WithHooks(const TrainingOptions& options, TrainingMonitor* monitor) {
  SessionOptions session = options.session;
  session.on_phase = [monitor, at = options.end_at](StepPhase phase, std::int64_t step) {
    monitor->times().Reach(phase, RealClock().Now());
    if (at.has_value() && phase == at->phase && step == at->step) raise(SIGKILL);
  };
  return session;
}

absl::Status Refuse(absl::string_view flag, std::int64_t value, absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " is ", value, "; allowed is ", allowed));
}

}  // namespace

absl::Status TrainingOptions::Validate() const {
  if (data.empty()) {
    return absl::InvalidArgumentError("--data is missing: name the folder of the MNIST idx files");
  }
  if (epochs < 1) return Refuse("--epochs", epochs, "1 or more");
  if (steps < 0) return Refuse("--steps", steps, "0 (all of the epochs) or more");
  if (batch < 1 || batch > 65536) return Refuse("--batch", batch, "1 to 65536");
  if (evaluate_every < 0) return Refuse("--evaluate-every", evaluate_every, "0 (off) or more");
  if (drift_every < 0) return Refuse("--drift-every", drift_every, "0 (off) or more");
  if (!evaluate_at.empty() && *evaluate_at.begin() < 0) {
    return Refuse("--evaluate-at", *evaluate_at.begin(), "steps of 0 or more");
  }
  LOCKSTEP_RETURN_IF_ERROR(lockstep::Validate(optimizer));
  return session.Validate();
}

absl::Status Train(const TrainingOptions& options, StopRequest* stop, TrainingMonitor* monitor) {
  LOCKSTEP_RETURN_IF_ERROR(options.Validate());
  LOCKSTEP_ASSIGN_OR_RETURN(LabeledImages train, LoadMnist(options.data, MnistPart::kTrain));
  LOCKSTEP_ASSIGN_OR_RETURN(LabeledImages test, LoadMnist(options.data, MnistPart::kTest));
  at::set_num_threads(1);
  const c10::Device device = DeviceOf(options.session);
  // Before anything asks LibTorch for it, as a seed does.
  if (!device.is_cpu()) LOCKSTEP_RETURN_IF_ERROR(LoadTorchCuda());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Classifier> classifier,
                            MakeClassifier(options.model, options.seed));
  if (!device.is_cpu()) {
    LOCKSTEP_RETURN_IF_ERROR(GuardTorch("moving the model to its GPU", [&] {
      classifier->MoveTo(device);
      return absl::OkStatus();
    }));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                            classifier->Join(WithHooks(options, monitor), options.optimizer));
  stop->OnInterrupt([&] {
    session->Interrupt(absl::CancelledError(absl::StrCat("stopped by signal ", stop->signal())));
  });
  absl::Status status = GuardTorch("training", [&] {
    // What a model draws at random while it trains differs from rank to rank.
    torch::manual_seed(options.seed + static_cast<std::uint64_t>(session->rank()) + 1);
    Training training(options, std::move(train), std::move(test), classifier.get(), session.get(),
                      *stop, monitor);
    return training.Run();
  });
  if (const int signal = stop->signal(); signal != 0 && absl::IsAborted(status)) {
    status = absl::CancelledError(absl::StrCat("stopped by signal ", signal, " in the step after ",
                                               session->step(), " (", status.message(), ")"));
  }
  session->Leave(status);
  monitor->Set(std::nullopt);
  stop->OnInterrupt(nullptr);
  return status;
}

}  // namespace lockstep
