// Engine: one rank's training step, from joining an epoch to leaving it.
//
// It carries out what StepProtocol decides: buffer syncs, the reduction to
// owners, the agreement, the owners' update, the spreading of parameters, and
// the control entries in between. No torch: see worker/session for the API that
// training code calls.
//
// Used by one thread. After an error of a collective call the epoch is over for
// this rank: every later call returns that error.
#ifndef LOCKSTEP_WORKER_ENGINE_ENGINE_H_
#define LOCKSTEP_WORKER_ENGINE_ENGINE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/policy/sync_policy.h"
#include "common/protocol/messages.h"
#include "worker/agent/coordinator_link.h"
#include "worker/engine/model.h"
#include "worker/optim/optimizer.h"
#include "worker/transport/transport.h"

namespace lockstep {

struct EngineOptions {
  // From attending to the first step, waiting for other workers included.
  absl::Duration join_timeout = absl::Minutes(5);
  // Of each collective operation; a rank that is later than this is missing.
  absl::Duration operation_timeout = absl::Seconds(60);

  absl::Status Validate() const;
};

// How training code formed the loss whose gradient it hands over.
enum class LossReduction {
  kMean,  // over this rank's samples, torch's default
  kSum,   // over this rank's samples
};

struct StepOptions {
  std::int64_t samples = 1;  // in this rank's part of the batch; 0: no data left
  LossReduction loss = LossReduction::kMean;
};

// An entry of the control log and the step after which it took effect here.
struct AppliedEntry {
  LogNumber number;
  std::int64_t step = 0;
};

// The largest difference of one buffer element between any two ranks.
struct BufferDrift {
  double largest = 0;
  std::string buffer;  // where it is; empty: no difference
};

// Totals since joining.
struct EngineStats {
  std::int64_t syncs = 0;         // buffer synchronisations
  std::int64_t synced_bytes = 0;  // size of what they kept equal
  std::int64_t optimizer_bytes = 0;
};

class Engine {
 public:
  // Joins the job behind `link`: attends, waits for an epoch, builds the
  // transport, adopts the model's parameters into arenas and makes replicas
  // equal as the policy says. Without a link: world size 1 under `policy`.
  // `model`, `transports` and `link` outlive the engine.
  // Errors: InvalidArgument: options, optimizer, model. DeadlineExceeded: names
  //   who is missing. Others as CoordinatorLink and Transport say.
  static absl::StatusOr<std::unique_ptr<Engine>> Join(const EngineOptions& options,
                                                      const OptimizerConfig& optimizer,
                                                      Model* model, TransportFactory* transports,
                                                      CoordinatorLink* link);
  static absl::StatusOr<std::unique_ptr<Engine>> Alone(const OptimizerConfig& optimizer,
                                                       const SyncPolicy& policy, Model* model);

  virtual ~Engine() = default;

  // Before each training forward: synchronises buffers if due.
  virtual absl::Status BeforeForward() = 0;
  // Before each evaluation. Collective only if the policy asks for a sync there.
  virtual absl::Status BeforeEvaluation() = 0;
  // After the backward passes of one step.
  virtual absl::Status Step(const StepOptions& options) = 0;
  // Collective: training code's own broadcast, now (pytorch#30718).
  virtual absl::Status BroadcastBuffers(int root) = 0;
  virtual absl::Status BroadcastParameters(int root) = 0;
  // Collective, for diagnosis: over all floating buffers, selected or not.
  virtual absl::StatusOr<BufferDrift> MeasureBufferDrift() = 0;

  // Sent to the coordinator with the next heartbeat.
  virtual void Report(Phase phase, const std::map<std::string, double>& metrics) = 0;

  // Ends the membership; OK: the work is done. The model owns its parameters
  // again. The destructor leaves with CANCELLED if this was not called.
  virtual void Leave(const absl::Status& why) = 0;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual Epoch epoch() const = 0;
  virtual std::int64_t step() const = 0;  // committed
  virtual Revision revision() const = 0;
  virtual const SyncPolicy& policy() const = 0;
  virtual const std::vector<AppliedEntry>& applied() const = 0;
  virtual EngineStats stats() const = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_ENGINE_H_
