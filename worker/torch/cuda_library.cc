#include "worker/torch/cuda_library.h"

#include <dlfcn.h>

#include "ATen/Context.h"
#include "absl/strings/str_cat.h"
#include "c10/core/DeviceType.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "torch/headeronly/version.h"

namespace lockstep {

absl::Status LoadTorchCuda(const std::string& library) {
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) {
    // What it registers with LibTorch is made by its static initialisers. Its symbols are for the
    // libraries that it brings along.
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr || !c10::impl::hasDeviceGuardImpl(c10::kCUDA)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "LibTorch's library for CUDA was not loaded: ",
          handle == nullptr ? std::string(dlerror())
                            : absl::StrCat(library, " is there, but registers no CUDA device"),
          "; put the folder torch/lib of the Python package torch " TORCH_VERSION
          " for CUDA on LD_LIBRARY_PATH, or use transport shm or gloo"));
    }
  }
  if (at::hasCUDA()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "LibTorch finds no GPU, though its library for CUDA is loaded: there is none, or LibTorch was "
      "asked for devices before; call LoadTorchCuda() first, before seeds are set or models made");
}

}  // namespace lockstep
