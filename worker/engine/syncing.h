// Syncing: a model's tensors over a transport. Which ones and when is decided
// elsewhere (worker/core/step_protocol.h).
//
// Each function is collective and runs even if this rank has no such tensor:
// only so can the transport see that another rank has one.
#ifndef LOCKSTEP_WORKER_ENGINE_SYNCING_H_
#define LOCKSTEP_WORKER_ENGINE_SYNCING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/policy/selector.h"
#include "worker/engine/engine.h"
#include "worker/engine/model.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Makes the selected buffers those of `root`. Returns their bytes.
// Errors: as Model::Buffers() and Transport::Broadcast().
absl::StatusOr<std::int64_t> BroadcastBuffersFrom(int root, const BufferSelector& selector,
                                                  Model* model, Transport* transport);

// Makes the arena and the frozen parameters those of `root`.
// Errors: as Model::FrozenParameters() and Transport::Broadcast().
absl::Status BroadcastParametersFrom(int root, const Arena& parameters, Model* model,
                                     Transport* transport);

// The largest difference of one element of a float32 or float64 buffer between
// any two ranks. NaN counts as infinity.
// Errors: as Model::Buffers() and Transport::AllReduce().
absl::StatusOr<BufferDrift> MeasureDrift(Model* model, Transport* transport);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_SYNCING_H_
