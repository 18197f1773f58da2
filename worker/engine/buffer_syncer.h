// BufferSyncer: makes a model's buffers equal over a transport, as a task says.
// What is due and when is decided elsewhere (worker/core/step_protocol.h).
//
// What it found out in a sync it uses again in the next one, as long as the task and
// the model's buffers are the same. Of one epoch, so of one model and transport.
// Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_BUFFER_SYNCER_H_
#define LOCKSTEP_WORKER_ENGINE_BUFFER_SYNCER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/protocol/messages.h"
#include "worker/core/step_protocol.h"
#include "worker/device/device_math.h"
#include "worker/engine/content_reader.h"
#include "worker/engine/model.h"
#include "worker/transport/transport.h"

namespace lockstep {

class BufferSyncer {
 public:
  // `math`, of the device that buffers may lie on, outlives this.
  explicit BufferSyncer(DeviceMath* math) : contents_(math) {}

  // Collective, also on a rank that has no such buffer: only so can the transport
  // see that another rank has one.
  //
  // One exchange for the whole task, with one transfer for each operation and
  // root; what they move is agreed before any byte does. With
  // task.skip_unchanged one before, of one flag for each buffer; where all are
  // unchanged it is the only one.
  // `counters` are increased. Errors: as Model::Buffers(), TensorAccess::
  //   WriteBack(), Transport::Exchange() and DeviceMath::ToHost().
  absl::Status Sync(const SyncTask& task, Model* model, Transport* transport,
                    SyncCounters& counters);

 private:
  // What moves together.
  struct Batch {
    const BufferSync* sync = nullptr;  // of all its buffers
    std::vector<TensorView> views;
  };
  // What an exchange consists of.
  struct Moves {
    std::vector<Batch> batches;
    std::vector<Transfer> transfers;   // of each batch
    std::vector<std::size_t> written;  // indices among all views
    std::int64_t nonempty = 0;         // transfers that have bytes to move
    std::int64_t bytes = 0;
  };

  // Finds the buffers that are due, and what is to be moved if all have changed.
  absl::Status Find(const SyncTask& task, Model* model, int rank);
  // Of those views that `changed`, with the batches in the order of the first of each.
  Moves MovesOf(const std::vector<bool>& changed, int rank) const;
  // By view: whether any rank has changed it since it was last made equal.
  absl::StatusOr<std::vector<bool>> ChangedAnywhere(Transport* transport);

  std::shared_ptr<const BufferRules> rules_;  // those that treatments_ are of
  // By name, as found so far: looking a buffer up takes all patterns. -1: excluded.
  std::map<std::string, int, std::less<>> treatments_;
  // Digests of contents when they were last made equal, by name.
  std::map<std::string, std::uint64_t, std::less<>> equal_;

  ContentReader contents_;

  // What was found last.
  std::vector<std::optional<BufferSync>> buffers_;  // as the task had them
  std::unique_ptr<TensorAccess> access_;            // null: nothing
  std::vector<const BufferSync*> syncs_;            // by view; in buffers_
  Moves moves_;                                     // of all views
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_BUFFER_SYNCER_H_
