// Engine: one rank's training step, from joining an epoch to leaving it.
//
// It carries out what StepProtocol decides: buffer syncs, the agreement, the one
// pass in which owners sum gradients, update their shards and spread them, and the
// control entries in between. No torch: see worker/session for the API that training
// code calls.
//
// Used by one thread, but for Interrupt(). After an error of a collective call the
// epoch is over for this rank: every later call returns that error. Parameters may
// then be of two steps, each element of one. Rejoin() takes what this rank holds into the
// next epoch.
#ifndef LOCKSTEP_WORKER_ENGINE_ENGINE_H_
#define LOCKSTEP_WORKER_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/mono_time.h"
#include "common/policy/sync_policy.h"
#include "common/protocol/control_log.h"
#include "common/protocol/messages.h"
#include "worker/agent/coordinator_link.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/core/agreement.h"
#include "worker/core/recovery.h"
#include "worker/core/step_protocol.h"
#include "worker/engine/buffer_drift.h"
#include "worker/engine/buffer_syncer.h"
#include "worker/engine/engine_options.h"
#include "worker/engine/membership.h"
#include "worker/engine/recovering.h"
#include "worker/engine/model.h"
#include "worker/engine/shard_update.h"
#include "worker/optim/optimizer.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Since joining.
struct EngineStats {
  SyncCounters sync;
  absl::Duration sync_time;  // of this rank in them, waiting for others included
  std::int64_t optimizer_bytes = 0;
  // Of the last committed step: the averaged gradient's, unscaled, before it was
  // clipped; nothing if max_grad_norm was 0.
  std::optional<double> last_grad_norm;
};

class Engine final {
 public:
  // Joins the job behind `link`: attends, waits for an epoch, builds the
  // transport, adopts the model's parameters into arenas and makes replicas
  // equal as the policy says. `model` and `link` outlive the engine; `transports`
  // is used while joining only.
  // When it fails to join an epoch it leaves the job with that error.
  // Errors: InvalidArgument: options, optimizer, model. FailedPrecondition: the
  //   coordinator's plan is not the one this worker computes. DeadlineExceeded:
  //   names who is missing. Others as CoordinatorLink and Transport say.
  static absl::StatusOr<std::unique_ptr<Engine>> Join(const EngineOptions& options,
                                                      const OptimizerConfig& optimizer,
                                                      Model* model, TransportFactory* transports,
                                                      CoordinatorLink* link);
  // Joins the job's next epoch with what this rank holds from the last one: after an error of a
  // collective call that CanRejoin(), or when epoch_is_over(). Those who are left go on where the
  // last committed step ended; step() tells whether the one under way was. `engine` has left its
  // epoch then; its model and link are used on, statistics start anew.
  // Errors: as Join(); DataLoss: the state of some elements is gone with the ranks that held it.
  static absl::StatusOr<std::unique_ptr<Engine>> Rejoin(Engine& engine,
                                                        const EngineOptions& options,
                                                        const OptimizerConfig& optimizer,
                                                        TransportFactory* transports);
  // World size 1, without a coordinator, under `policy`.
  static absl::StatusOr<std::unique_ptr<Engine>> Alone(const OptimizerConfig& optimizer,
                                                       const SyncPolicy& policy, Model* model,
                                                       const EngineOptions& options = {});

  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Before each training forward: synchronises buffers if due.
  absl::Status BeforeForward();
  // Before each evaluation or checkpoint. Collective only if the policy asks for a
  // sync there.
  absl::Status BeforeEvaluation();
  absl::Status BeforeCheckpoint();
  // Collective: a checkpoint of the state behind the last step; returns once it is durable.
  // Checkpoints by schedule and on command are made by Step() and do not wait for a disk.
  // Errors: FailedPrecondition: there is no directory for them; or, on rank 0 alone, why
  //   it was not written: training can go on.
  absl::Status SaveCheckpoint();
  // Optional, by all ranks alike, right before the last backward of a step: gradients
  // may travel from then on, while backward still makes others. `options` as Step()
  // will be given them; of these only what the gradient counts for matters here, the
  // samples and the loss. Does not wait. From then on gradients must not be changed but
  // by that backward, and the next collective call is Step(). A second call in one step
  // does nothing.
  // Errors: InvalidArgument: an option is wrong; FailedPrecondition: it was announced
  //   with other options in this step. Nothing was changed. Others as of collective
  //   calls, which come from Step() as a rule.
  absl::Status BeforeBackward(const StepOptions& options);
  // After the backward passes of one step.
  // Errors: InvalidArgument: a gradient is not finite, or no rank has samples:
  //   refused on all ranks, nothing is changed but the gradients, which are gone, and
  //   training can go on. Or an option is wrong, on this rank alone.
  //   FailedPrecondition: an option or the learning rate, which must be equal on all
  //   ranks, is not; named. After BeforeBackward() also: the options are others, or a
  //   gradient was changed; the peers have this rank's gradients, so the epoch is over.
  absl::Status Step(const StepOptions& options);
  // Not collective, but all ranks do it alike: the rate of the steps from the next
  // one on, which they agree on; see Step().
  // Errors: InvalidArgument: negative or not finite; the rate stays as it was.
  absl::Status SetLearningRate(double lr);
  // Collective, now, whatever the schedule says: each buffer by its rule's
  // operation and root.
  absl::Status SyncBuffers();
  // Collective: training code's own broadcast, now (pytorch#30718). Buffers are
  // those that the policy in force synchronises.
  // Errors: InvalidArgument: there is no such rank; nothing was sent.
  absl::Status BroadcastBuffers(int root);
  absl::Status BroadcastParameters(int root);
  // Collective, for diagnosis: over the float32 and float64 buffers that the policy
  // in force synchronises at some time or on command.
  absl::StatusOr<BufferDrift> MeasureBufferDrift();

  // Not collective: asks the coordinator for a revision; see CoordinatorLink. Alone
  // it is in force after the next step.
  absl::StatusOr<Revision> RevisePolicy(const SyncPolicy& policy, const std::string& reason);

  // Sent to the coordinator with the next heartbeat. Metrics that are not named
  // keep their last values.
  void Report(Phase phase, const std::map<std::string, double>& metrics);

  // From any thread: ends the collective call in progress, if any, and lets the
  // next one fail, here and on the peers. Leave() is still to be called.
  void Interrupt(const absl::Status& why);

  // Ends the membership; OK: the work is done. The model owns its parameters
  // again. The destructor leaves with CANCELLED if this was not called.
  void Leave(const absl::Status& why);

  // Whether Rejoin() may help: a peer or the network failed, or the coordinator ended the epoch.
  bool CanRejoin() const;
  // The members agreed to end it behind the last step: nothing but Rejoin() can follow.
  bool epoch_is_over() const { return over_; }

  int rank() const;
  int world_size() const;
  Epoch epoch() const;
  std::int64_t step() const;  // committed
  std::int64_t samples() const;  // committed with them
  double learning_rate() const;  // of the next step
  Revision revision() const;
  const SyncPolicy& policy() const;
  const std::vector<AppliedEntry>& applied() const { return applied_; }
  // How its epoch began, for people: "continues behind step 4 with the state of w0, w2; new: w1".
  const std::string& beginning() const { return beginning_; }
  EngineStats stats() const { return stats_; }

 private:
  Engine(Model* model, CoordinatorLink* link, std::unique_ptr<Membership> membership,
         const EngineOptions& options);

  // `held`: what this rank brings.
  static absl::StatusOr<std::unique_ptr<Engine>> JoinWith(const EngineOptions& options,
                                                          const OptimizerConfig& optimizer,
                                                          Model* model,
                                                          TransportFactory* transports,
                                                          CoordinatorLink* link,
                                                          HeldMemberships held);
  absl::Status Start(const HeldMemberships& held);
  absl::Status Adopt(const Recovery& recovery, bool from_checkpoint);
  absl::Status SyncAtStart(const Recovery& recovery);
  // The epoch is over for this rank, which stays in the job. OK: agreed by all. What it holds.
  std::shared_ptr<Membership> Stop(const absl::Status& why);
  // Null: the epoch does not begin from a checkpoint.
  absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointToBeginWith(
      const Recovery& recovery);
  absl::Status SaveWhatIsDue(const Agreement& agreement, bool on_command);
  absl::Status BeginCheckpoint();

  // That this is not called between BeforeBackward() and Step(): error_, or that.
  absl::Status CheckMayMeet() const;
  absl::Status OtherThanAnnounced(float weight) const;
  // Of a parameter by the plan's number, padding included: its gradient is ready.
  void GradientIsReady(std::size_t placement);
  absl::StatusOr<Agreement> CollectAndAgree(const StepOptions& options);
  absl::Status Complete(const Agreement& agreement);
  absl::Status LearnEntries();
  // Why the step cannot be taken, alike on all ranks; OK if it can.
  absl::Status RefusalOf(const Agreement& agreement) const;

  absl::Status CarryOut(const std::vector<SyncTask>& due);
  absl::Status CheckRoot(int root) const;
  // Roots that are no members; patterns that match nothing, at the start.
  void WarnAboutPolicy(bool at_start) const;

  // Ends the epoch for this rank if `status` is an error, and tells the peers.
  absl::Status Latch(absl::Status status);

  void Reach(StepPhase phase) const {
    if (on_phase_) on_phase_(phase, membership_->protocol.step());
  }

  Model* const model_;
  CoordinatorLink* const link_;  // null: alone
  const std::shared_ptr<Membership> membership_;
  const absl::Duration revise_timeout_;
  const std::function<void(StepPhase, std::int64_t)> on_phase_;
  const std::shared_ptr<const Clock> clock_;
  const std::shared_ptr<CheckpointSaver> saver_;  // null: no checkpoints
  absl::Status error_;  // the first of a collective call, or that it left
  bool adopted_ = false;
  bool left_ = false;
  bool over_ = false;
  std::optional<float> announced_weight_;  // from BeforeBackward() to Step()
  std::map<std::string, double> metrics_;
  std::string beginning_;
  std::vector<AppliedEntry> applied_;
  EngineStats stats_;
  ShardUpdate update_;
  BufferSyncer syncer_;
  std::optional<PolicyRevised> own_newest_;  // alone: what RevisePolicy() made last
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_ENGINE_H_
