// Syncing: a model's tensors over a transport. Which ones and when is decided
// elsewhere (worker/core/step_protocol.h).
//
// Everything here is collective and runs even if this rank has no such tensor:
// only so can the transport see that another rank has one.
#ifndef LOCKSTEP_WORKER_ENGINE_SYNCING_H_
#define LOCKSTEP_WORKER_ENGINE_SYNCING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/protocol/messages.h"
#include "common/sharding/shard_plan.h"
#include "worker/core/step_protocol.h"
#include "worker/engine/model.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Synchronises buffers as tasks say, and remembers between them what saves work.
// Of one epoch; used by one thread.
class BufferSyncer {
 public:
  // One exchange for the whole task, with one transfer for each operation and
  // root; what they move is agreed before any byte does. With
  // task.skip_unchanged one before, of one flag for each buffer; where all are
  // unchanged it is the only one.
  // `counters` are increased. Errors: as Model::Buffers(), TensorAccess::
  //   WriteBack() and Transport::Exchange().
  absl::Status Sync(const SyncTask& task, Model* model, Transport* transport,
                    SyncCounters& counters);

 private:
  // The treatment of that buffer, or -1: excluded.
  int TreatmentOf(const std::shared_ptr<const BufferRules>& rules, absl::string_view name);
  // By view: whether any rank has changed it since it was last made equal.
  absl::StatusOr<std::vector<bool>> ChangedAnywhere(std::span<const TensorView> views,
                                                    const std::vector<const BufferSync*>& syncs,
                                                    Transport* transport);

  std::shared_ptr<const BufferRules> rules_;  // those that treatments_ are of
  std::map<std::string, int, std::less<>> treatments_;  // as found so far
  // Digests of contents when they were last made equal, by name.
  std::map<std::string, std::uint64_t, std::less<>> equal_;
};

// Makes the arena and the frozen parameters those of `root`.
// Errors: as Model::FrozenParameters() and Transport::Broadcast().
absl::Status BroadcastParametersFrom(int root, const Arena& parameters, Model* model,
                                     Transport* transport);

// Compares the parameters among ranks, bit by bit but for chance; in an arena that
// all ranks share there is nothing to compare.
// Errors: FailedPrecondition: they differ; names the first such parameter and the
//   ranks that differ from rank 0. As Model::FrozenParameters().
absl::Status CheckParametersEqual(const ShardPlan& plan, const Arena& parameters, Model* model,
                                  Transport* transport);

// The largest difference of one buffer element between any two ranks.
struct BufferDrift {
  double largest = 0;
  std::string buffer;  // where it is; empty: no difference
};

// Of float32 and float64 buffers. NaN counts as infinity.
// Errors: as Model::Describe(), Model::Buffers() and Transport::AllReduce().
absl::StatusOr<BufferDrift> MeasureDrift(Model* model, Transport* transport);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_SYNCING_H_
