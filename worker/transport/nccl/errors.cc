#include "worker/transport/nccl/errors.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace lockstep::nccl_link {

absl::Status FromNccl(const NcclApi& api, ncclResult_t result, absl::string_view what,
                      ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const char* const name = api.GetErrorString(result);
  const char* const details = api.GetLastError(comm);
  std::string text = absl::StrCat("NCCL failed in the ", what, ": ",
                                  name == nullptr ? "unknown" : name, " (code ",
                                  static_cast<int>(result), ")");
  if (details != nullptr && *details != '\0') absl::StrAppend(&text, ", ", details);
  switch (result) {
    case ncclRemoteError:
    case ncclSystemError:
      return absl::UnavailableError(absl::StrCat(
          text, "; no rank is known to be gone: look at the network between the GPUs' hosts"));
    default:
      return absl::InternalError(
          absl::StrCat(text, "; set NCCL_DEBUG=INFO to see what it does"));
  }
}

absl::Status FromCuda(const NcclApi& api, cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  // Else a later call would report it once more.
  api.GetLastCudaError();
  const char* const name = api.GetCudaErrorString(error);
  const std::string text =
      absl::StrCat("CUDA failed in the ", what, ": ", name == nullptr ? "unknown" : name,
                   " (code ", static_cast<int>(error), ")");
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

}  // namespace lockstep::nccl_link
