// Session: what training code calls to train a module in lockstep with others.
//
//   auto session = lockstep::Session::Join(options, *model, lockstep::AdamW{.lr = 3e-4});
//   while ((*session)->step() < steps) {
//     status = TrainOn(BatchBehind((*session)->samples(), (*session)->rank()));
//     if (!status.ok() && !MustRepeat(status)) return status;
//   }
//
// where TrainOn() is
//
//     LOCKSTEP_RETURN_IF_ERROR(session->BeforeForward());
//     auto loss = criterion(model->forward(x), y);
//     loss.backward();
//     return session->Step({.samples = x.size(0)});
//
// When a peer dies the ranks that are left form a new epoch within the call that noticed it, with
// all state that some of them hold (docs/architecture.md, section 4). rank(), world_size() and
// epoch() are then others. If the step under way could be completed, Step() returns OK; else
// each rank's call in it returns an error that MustRepeat(): the step was not taken by
// anybody, and is taken anew by those who are there. So batches are chosen anew for each
// attempt, by samples() and rank(). Ranks may also join and leave behind a step, as the coordinator says.
//
// After each Step() parameters have no gradient, as after zero_grad(). Gradients are
// measured as backward makes them: write to them by tensor operations, not through
// raw pointers or data(), or what becomes infinite there is not noticed. Exceptions
// of LibTorch end as statuses. After any other error of a collective call the membership is
// over: every later call returns that error; leave, and join anew.
//
// Used by one thread, but for Interrupt().
#ifndef LOCKSTEP_WORKER_SESSION_SESSION_H_
#define LOCKSTEP_WORKER_SESSION_SESSION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "common/policy/sync_policy.h"
#include "common/protocol/messages.h"
#include "worker/agent/coordinator_link.h"
#include "worker/engine/engine.h"
#include "worker/engine/model.h"
#include "worker/optim/optimizer.h"
#include "worker/session/session_options.h"
#include "worker/transport/transport.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace lockstep {

class NamedTensors;

// A second module whose tensors are kept in step, such as an EMA copy. All of
// them, parameters too, count as buffers, named `prefix`.NAME: nothing trains them.
struct AttachedModule {
  std::string prefix;  // dotted names of one or several components
  torch::nn::Module* module = nullptr;  // outlives the session
};

// Whether `status`, of a collective call of a session, says no more than that the step in progress
// was not taken and the membership has changed: train on, with a new batch.
bool MustRepeat(const absl::Status& status);

class Session final {
 public:
  // Joins the job, or trains alone; returns when all ranks are ready and hold
  // equal replicas as the policy says. `module` outlives the session; meanwhile
  // its parameters may be changed in value, not in type, shape or place.
  // Over nccl trainable parameters are on options.gpu, else on the CPU.
  // Errors: InvalidArgument: options, optimizer or module, named. FailedPrecondition: no
  //   GPU, or what it takes to use one is missing, named. NotFound: no
  //   such job. Unavailable: the coordinator was not reached. DeadlineExceeded:
  //   names who is missing. Others as the coordinator turns this worker away.
  static absl::StatusOr<std::unique_ptr<Session>> Join(
      const SessionOptions& options, torch::nn::Module& module, const OptimizerConfig& optimizer,
      const std::vector<AttachedModule>& attached = {});
  static absl::StatusOr<std::unique_ptr<Session>> Join(
      const SessionOptions& options, torch::jit::Module& module, const OptimizerConfig& optimizer,
      const std::vector<AttachedModule>& attached = {});
  // The same by a link that attends already, as `options.worker`, over
  // `transports`: for tests and other ways to reach a coordinator.
  static absl::StatusOr<std::unique_ptr<Session>> JoinBy(
      std::unique_ptr<CoordinatorLink> link, std::shared_ptr<TransportFactory> transports,
      const SessionOptions& options, torch::nn::Module& module, const OptimizerConfig& optimizer,
      const std::vector<AttachedModule>& attached = {});

  // Leaves with CANCELLED if Leave() was not called.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // While one is alive, BeforeForward() triggers nothing: for the forwards of
  // gradient accumulation. It must not outlive the session.
  class NoSyncScope {
   public:
    explicit NoSyncScope(Session* session) : session_(session) { ++session_->no_sync_; }
    ~NoSyncScope() { --session_->no_sync_; }
    NoSyncScope(const NoSyncScope&) = delete;
    NoSyncScope& operator=(const NoSyncScope&) = delete;

   private:
    Session* const session_;
  };
  [[nodiscard]] NoSyncScope NoSync() { return NoSyncScope(this); }

  // Collective unless said otherwise. Errors of all: one that MustRepeat(); those of Transport,
  // each naming the ranks and tensors it is about; DataLoss: with the ranks that were lost the
  // optimizer state of some parameters is gone; Cancelled: this worker was drained.

  // Before each training forward: synchronises buffers if the policy says so. A
  // second call in one step does nothing, nor does one under NoSync() or while
  // autograd is off (evaluation). A rank without data calls it too.
  absl::Status BeforeForward();
  // Before each evaluation or checkpoint, on all ranks alike: synchronises if the
  // policy says so.
  absl::Status BeforeEvaluation();
  absl::Status BeforeCheckpoint();
  // Optional, by all ranks alike, right before the last backward of a step: over a
  // network gradients then travel while backward still makes others. `options` as
  // Step() will be given them; the samples and the loss count here. Does not wait.
  // From then on gradients must not be changed but by that backward, so that clipping
  // is left to max_grad_norm, and the next collective call is Step(). A rank without
  // data calls it too. A second call in one step does nothing.
  // Errors: InvalidArgument: an option is wrong; FailedPrecondition: it was announced
  //   with other options in this step; nothing was changed.
  absl::Status BeforeBackward(const StepOptions& options);
  // After the backward passes of one step. Also InvalidArgument: the gradient is
  //   not finite, or no rank has samples: nothing was changed, on no rank. Or an
  //   option is wrong, on this rank alone. FailedPrecondition: an option that must
  //   be equal on all ranks is not, named, or the learning rate. stats() tells the
  //   gradient's norm. After BeforeBackward() also FailedPrecondition: the options are
  //   others, or a gradient was changed (what is written through data() is not
  //   noticed); the membership is over, as peers have this rank's gradients.
  absl::Status Step(const StepOptions& options);
  // Not collective, but all ranks do it alike: the rate of the steps from the next
  // one on. A schedule calls it before each Step() with what it makes of step().
  // Errors: InvalidArgument: negative or not finite; the rate stays as it was.
  absl::Status SetLearningRate(double lr);
  // A checkpoint of the state behind the last step; returns once it is durable. Those of
  // SessionOptions::checkpoints and on command are made by Step() and wait for no disk.
  // Errors: FailedPrecondition: no directory was named; or, on rank 0 alone, why it was not
  //   written.
  absl::Status SaveCheckpoint();
  // Now, whatever the policy's schedule says. SyncBuffers(): each buffer by its
  // rule's operation and root. Broadcast...(): from that root (pytorch#30718), the
  // buffers being those that the policy synchronises.
  absl::Status SyncBuffers();
  absl::Status BroadcastBuffers(int root);
  absl::Status BroadcastParameters(int root);
  // How far the ranks' buffers are apart, selected or not.
  absl::StatusOr<BufferDrift> MeasureBufferDrift();

  // Not collective: asks the coordinator to make `policy` the job's newest, and
  // waits for its answer: the revision, in force on all ranks after one and the
  // same step that revision() will show. Several ranks may ask for the same policy:
  // one revision is made, unless somebody else's comes between their calls; then
  // the later call makes another, which undoes that one. Alone it is in force after the next step.
  // Errors: as UpdateSyncPolicy in proto/lockstep/v1/policy.proto.
  absl::StatusOr<Revision> RevisePolicy(const SyncPolicy& policy, const std::string& reason);

  // Not collective: goes to the coordinator with the next heartbeat. Metrics that
  // are not named keep their last values.
  void Report(Phase phase, const std::map<std::string, double>& metrics);
  // From any thread: ends the collective call in progress, if any, and lets the
  // next one fail, here and on the peers. Leave() is still to be called.
  void Interrupt(const absl::Status& why);
  // Not collective: ends the membership; OK: the work is done. The module owns
  // its parameters again.
  void Leave(const absl::Status& why);

  int rank() const { return engine_->rank(); }
  int world_size() const { return engine_->world_size(); }
  Epoch epoch() const { return engine_->epoch(); }
  std::int64_t step() const { return engine_->step(); }  // committed, also before this session
  // Of all ranks, committed with these steps: where in the data the next one goes on.
  std::int64_t samples() const { return engine_->samples(); }
  double learning_rate() const { return engine_->learning_rate(); }  // of the next step
  Revision revision() const { return engine_->revision(); }
  const SyncPolicy& policy() const { return engine_->policy(); }
  const std::vector<AppliedEntry>& applied() const { return engine_->applied(); }
  // Of the epoch.
  EngineStats stats() const { return engine_->stats(); }

 private:
  Session() = default;

  // `call`: a collective one of the engine. If it fails in a way in which a new epoch may help,
  // one is joined, and what is returned MustRepeat().
  template <typename Call>
  auto Collective(Call call) -> decltype(call());
  // Joins the next epoch. `why`: what the last one ended with.
  absl::Status Rejoin(const absl::Status& why);

  static absl::StatusOr<std::unique_ptr<Session>> JoinWith(const SessionOptions& options,
                                                           std::unique_ptr<NamedTensors> tensors,
                                                           const OptimizerConfig& optimizer);
  static absl::StatusOr<std::unique_ptr<Session>> JoinEpoch(
      std::unique_ptr<CoordinatorLink> link, std::shared_ptr<TransportFactory> transports,
      const EngineOptions& options, absl::Duration rejoin_timeout, std::unique_ptr<Model> model,
      const OptimizerConfig& optimizer);

  // The engine uses what is above it, so it goes first.
  std::unique_ptr<Model> model_;
  std::shared_ptr<TransportFactory> transports_;  // null: alone
  std::unique_ptr<CoordinatorLink> link_;         // null: alone
  std::unique_ptr<Engine> engine_;
  EngineOptions options_;      // of the next epoch
  OptimizerConfig optimizer_;
  int no_sync_ = 0;  // scopes alive

  // What Interrupt() reaches: another thread must not find an engine that is being replaced.
  Mutex mu_;
  Engine* interruptible_ ABSL_GUARDED_BY(mu_) = nullptr;  // null: an epoch is being joined
  absl::Status interrupted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_SESSION_SESSION_H_
