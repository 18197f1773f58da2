#include "worker/transport/nccl/nccl_api.h"

#include <dlfcn.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "worker/transport/nccl/nccl_functions.h"

namespace lockstep {
namespace {

// Before it, a thread could not poll several communicators, and aborts could spin.
constexpr int kOldestNccl = 22700;

constexpr int NcclMajor(int version) { return version < 10000 ? version / 1000 : version / 10000; }

// "2.30.7" of 23007; up to 2.8, there were three digits after the major number.
std::string NcclVersion(int version) {
  return absl::StrCat(NcclMajor(version), ".", version % (version < 10000 ? 1000 : 10000) / 100,
                      ".", version % 100);
}

constexpr int CudaMajor(int version) { return version / 1000; }

// "13.2" of 13020.
std::string CudaVersion(int version) {
  return absl::StrCat(CudaMajor(version), ".", version % 1000 / 10);
}

absl::Status Unusable(absl::string_view found, absl::string_view remedy) {
  return absl::FailedPreconditionError(
      absl::StrCat("transport nccl cannot be used: ", found, "; ", remedy,
                   ", or use transport gloo"));
}

std::string InstallNccl() {
  return absl::StrCat("install NCCL ", NcclVersion(kOldestNccl), " or newer of version ",
                      NCCL_MAJOR);
}

std::string InstallCuda() {
  return absl::StrCat("install the CUDA runtime of version ", CudaMajor(CUDART_VERSION));
}

absl::StatusOr<void*> Open(const std::string& file, const std::string& remedy) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const why = dlerror();
  return Unusable(
      absl::StrCat(file, " cannot be loaded (", why == nullptr ? "no reason" : why, ")"), remedy);
}

template <typename Function>
void Find(void* library, const char* name, Function*& function, std::vector<std::string>& missing) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) missing.push_back(name);
}

absl::Status CheckComplete(const std::string& file, const std::vector<std::string>& missing,
                           const std::string& remedy) {
  if (missing.empty()) return absl::OkStatus();
  return Unusable(absl::StrCat(file, " does not have ", absl::StrJoin(missing, ", ")), remedy);
}

absl::Status LoadNccl(const std::string& file, NcclApi& api) {
  LOCKSTEP_ASSIGN_OR_RETURN(void* const library, Open(file, InstallNccl()));
  std::vector<std::string> missing;
#define LOCKSTEP_FIND(member, symbol) Find(library, #symbol, api.member, missing);
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_FIND)
  // The version first: it is why an old library lacks functions.
  int version = 0;
  if (api.GetVersion != nullptr) {
    const ncclResult_t result = api.GetVersion(&version);
    if (result != ncclSuccess) {
      return Unusable(absl::StrCat(file, " does not say its version (error ", result, ")"),
                      InstallNccl());
    }
    if (NcclMajor(version) != NCCL_MAJOR || version < kOldestNccl) {
      return Unusable(absl::StrCat(file, " is NCCL ", NcclVersion(version)), InstallNccl());
    }
  }
  return CheckComplete(file, missing, InstallNccl());
}

absl::Status LoadCudaRuntime(const std::string& file, NcclApi& api) {
  LOCKSTEP_ASSIGN_OR_RETURN(void* const library, Open(file, InstallCuda()));
  std::vector<std::string> missing;
  LOCKSTEP_CUDA_FUNCTIONS(LOCKSTEP_FIND)
#undef LOCKSTEP_FIND
  int version = 0;
  if (api.RuntimeGetVersion != nullptr) {
    const cudaError_t error = api.RuntimeGetVersion(&version);
    if (error != cudaSuccess) {
      return Unusable(absl::StrCat(file, " does not say its version (error ", error, ")"),
                      InstallCuda());
    }
    if (CudaMajor(version) != CudaMajor(CUDART_VERSION)) {
      return Unusable(absl::StrCat(file, " is the CUDA runtime ", CudaVersion(version)),
                      InstallCuda());
    }
  }
  return CheckComplete(file, missing, InstallCuda());
}

absl::Status CheckGpu(const NcclApi& api) {
  // Drivers of one major version fit all runtimes of it and of those before.
  int driver = 0;
  const cudaError_t asked = api.DriverGetVersion(&driver);
  const std::string remedy =
      absl::StrCat("install an NVIDIA driver for CUDA ", CudaMajor(CUDART_VERSION),
                   " or newer on a host with GPUs");
  if (asked != cudaSuccess || driver == 0) return Unusable("there is no NVIDIA driver", remedy);
  if (CudaMajor(driver) < CudaMajor(CUDART_VERSION)) {
    return Unusable(absl::StrCat("the NVIDIA driver is one for CUDA ", CudaVersion(driver)),
                    remedy);
  }
  int count = 0;
  const cudaError_t error = api.GetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return absl::OkStatus();
  api.GetLastCudaError();
  return Unusable(
      absl::StrCat("no GPU was found (", api.GetCudaErrorString(error), ")"),
      "give the process a GPU (see nvidia-smi, CUDA_VISIBLE_DEVICES and the container's settings)");
}

}  // namespace

absl::StatusOr<NcclApi> LoadNcclApi(const NcclLibraries& libraries) {
  NcclApi api;
  LOCKSTEP_RETURN_IF_ERROR(LoadNccl(libraries.nccl, api));
  LOCKSTEP_RETURN_IF_ERROR(LoadCudaRuntime(libraries.cuda_runtime, api));
  LOCKSTEP_RETURN_IF_ERROR(CheckGpu(api));
  return api;
}

}  // namespace lockstep
