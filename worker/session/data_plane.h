// DataPlane: by what tensors of a session move, and where they lie.
#ifndef LOCKSTEP_WORKER_SESSION_DATA_PLANE_H_
#define LOCKSTEP_WORKER_SESSION_DATA_PLANE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "worker/device/device_math.h"
#include "worker/session/session_options.h"
#include "worker/transport/transport.h"

namespace lockstep {

struct DataPlane {
  std::shared_ptr<TransportFactory> transports;  // null: alone
  std::shared_ptr<DeviceMath> math;              // of the memory of their arenas; null: the host's
  c10::Device device = c10::kCPU;                // where trainable parameters must be
};

// What `options`, which are valid, name.
// Errors: FailedPrecondition: there is no GPU, or what it takes to use it is not installed or
//   not part of this program; says what is missing.
absl::StatusOr<DataPlane> MakeDataPlane(const SessionOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_SESSION_DATA_PLANE_H_
