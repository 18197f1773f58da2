// BufferSyncer: makes a model's buffers equal over a transport, as a task says.
// What is due and when is decided elsewhere (worker/core/step_protocol.h).
//
// Of one epoch. Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_BUFFER_SYNCER_H_
#define LOCKSTEP_WORKER_ENGINE_BUFFER_SYNCER_H_

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
#include "worker/core/step_protocol.h"
#include "worker/engine/model.h"
#include "worker/transport/transport.h"

namespace lockstep {

class BufferSyncer {
 public:
  // Collective, also on a rank that has no such buffer: only so can the transport
  // see that another rank has one.
  //
  // One exchange for the whole task, with one transfer for each operation and
  // root; what they move is agreed before any byte does. With
  // task.skip_unchanged one before, of one flag for each buffer; where all are
  // unchanged it is the only one.
  // `counters` are increased. Errors: as Model::Buffers(), TensorAccess::
  //   WriteBack() and Transport::Exchange().
  absl::Status Sync(const SyncTask& task, Model* model, Transport* transport,
                    SyncCounters& counters);

 private:
  // How the buffer is synchronised now; null: it is not.
  const BufferSync* SyncOf(const SyncTask& task, absl::string_view name);
  // By view: whether any rank has changed it since it was last made equal.
  absl::StatusOr<std::vector<bool>> ChangedAnywhere(std::span<const TensorView> views,
                                                    const std::vector<const BufferSync*>& syncs,
                                                    Transport* transport);

  std::shared_ptr<const BufferRules> rules_;  // those that treatments_ are of
  // By name, as found so far: looking a buffer up takes all patterns. -1: excluded.
  std::map<std::string, int, std::less<>> treatments_;
  // Digests of contents when they were last made equal, by name.
  std::map<std::string, std::uint64_t, std::less<>> equal_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_BUFFER_SYNCER_H_
