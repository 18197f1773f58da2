// How the members of an epoch begin from a checkpoint: as many as there are now, however many
// wrote it.
//
// Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_CHECKPOINT_LOADER_H_
#define LOCKSTEP_WORKER_ENGINE_CHECKPOINT_LOADER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/file_system.h"
#include "worker/engine/membership.h"
#include "worker/engine/model.h"

namespace lockstep {

// Collective. The newest checkpoint in `directory` that rank 0 finds; null: there is none.
// Errors: as Transport's; NotFound: this rank does not see it; DataLoss: its manifest is damaged;
//   FailedPrecondition: it is of another model or optimizer, named.
absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenNewestCheckpoint(
    FileSystem& files, const std::string& directory, Membership& now);

// Collective. Fills copies, parameters, buffers and frozen parameters; the next step is the one
// behind the checkpoint's. Errors: as CheckpointReader's, DeviceMath's and Transport's.
absl::Status LoadCheckpoint(CheckpointReader& checkpoint, Membership& now, Model* model);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_CHECKPOINT_LOADER_H_
