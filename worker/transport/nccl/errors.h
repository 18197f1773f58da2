// What NCCL and CUDA return, as statuses with their own words. Thread-safe.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_ERRORS_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/transport/nccl/nccl_api.h"

namespace lockstep::nccl_link {

// OK for ncclSuccess and ncclInProgress. `what` was done: "broadcast of tensors"; `comm` may
// be null. Errors: Unavailable: NCCL lost a peer or the network; Internal: all else.
absl::Status FromNccl(const NcclApi& api, ncclResult_t result, absl::string_view what,
                      ncclComm_t comm);

// Errors: ResourceExhausted: no memory; Internal: all else.
absl::Status FromCuda(const NcclApi& api, cudaError_t error, absl::string_view what);

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_ERRORS_H_
