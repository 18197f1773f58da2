// BufferDrift: how far the ranks' buffers are apart, for diagnosis.
#ifndef LOCKSTEP_WORKER_ENGINE_BUFFER_DRIFT_H_
#define LOCKSTEP_WORKER_ENGINE_BUFFER_DRIFT_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/device/device_math.h"
#include "worker/engine/model.h"
#include "worker/transport/transport.h"

namespace lockstep {

// The largest difference of one buffer element between any two ranks.
struct BufferDrift {
  double largest = 0;
  std::string buffer;  // where it is; empty: no difference
};

// Collective. Of the float32 and float64 buffers whose names `selects`; they must
// have equal shapes on all ranks. NaN counts as infinity.
// Errors: as Model::Describe(), Model::Buffers(), Transport::Exchange() and
//   DeviceMath::ToHost().
absl::StatusOr<BufferDrift> MeasureDrift(const std::function<bool(absl::string_view)>& selects,
                                         Model* model, DeviceMath* math, Transport* transport);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_BUFFER_DRIFT_H_
