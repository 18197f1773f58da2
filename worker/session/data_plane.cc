#include "worker/session/data_plane.h"

#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "common/base/status_macros.h"
#include "worker/torch/cuda_library.h"
#include "worker/torch/torch_math.h"
#include "worker/transport/gloo/gloo_transport.h"
#include "worker/transport/nccl/nccl_transport.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {
namespace {

// What training code puts on a GPU now, on its thread, LibTorch puts there.
cudaStream_t CurrentStream(c10::Device device) {
  const c10::impl::DeviceGuardImplInterface* const guard =
      c10::impl::getDeviceGuardImpl(device.type());
  return static_cast<cudaStream_t>(guard->getStreamNativeHandle(guard->getStream(device)));
}

absl::StatusOr<DataPlane> OnGpu(const SessionOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const NcclApi api, LoadNcclApi({}));
  LOCKSTEP_RETURN_IF_ERROR(LoadTorchCuda());
  DataPlane plane = {
      .device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(options.gpu))};
  LOCKSTEP_ASSIGN_OR_RETURN(plane.math, MakeTorchMath(plane.device));
  plane.transports = std::make_shared<NcclFactory>(
      NcclOptions{.api = api,
                  .device = options.gpu,
                  .interface = options.interface,
                  .math = plane.math,
                  .caller_stream = [device = plane.device] { return CurrentStream(device); }});
  return plane;
}

}  // namespace

absl::StatusOr<DataPlane> MakeDataPlane(const SessionOptions& options) {
  if (options.coordinator.empty()) return DataPlane();
  if (options.transport == "nccl") return OnGpu(options);
  if (options.transport == "gloo") {
    return DataPlane{.transports = std::make_shared<GlooFactory>(GlooOptions{
                         .interface = options.interface,
                         .bucket_bytes = options.gloo_bucket_bytes})};
  }
  return DataPlane{.transports = std::make_shared<ShmFactory>()};
}

}  // namespace lockstep
