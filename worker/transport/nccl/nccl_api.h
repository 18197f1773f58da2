// NcclApi: the functions of NCCL and of the CUDA runtime that the transport uses, as
// a table, so that one program runs on hosts with and without GPUs, and tests put a
// fake in their place.
//
// Types are those of the real headers; nothing is linked. Every function has the
// contract of its original. Copyable; the functions are as thread-safe as theirs.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_NCCL_API_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_NCCL_API_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

struct NcclApi {
  // NCCL.
  ncclResult_t (*GetVersion)(int* version) = nullptr;
  ncclResult_t (*GetUniqueId)(ncclUniqueId* id) = nullptr;
  ncclResult_t (*CommInitRankConfig)(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                     ncclConfig_t* config) = nullptr;
  ncclResult_t (*CommGetAsyncError)(ncclComm_t comm, ncclResult_t* error) = nullptr;
  ncclResult_t (*CommAbort)(ncclComm_t comm) = nullptr;
  ncclResult_t (*CommRegister)(ncclComm_t comm, void* buffer, std::size_t bytes,
                               void** handle) = nullptr;
  ncclResult_t (*MemAlloc)(void** memory, std::size_t bytes) = nullptr;
  ncclResult_t (*MemFree)(void* memory) = nullptr;
  ncclResult_t (*GroupStart)() = nullptr;
  ncclResult_t (*GroupEnd)() = nullptr;
  ncclResult_t (*Broadcast)(const void* send, void* receive, std::size_t count,
                            ncclDataType_t type, int root, ncclComm_t comm,
                            cudaStream_t stream) = nullptr;
  ncclResult_t (*AllGather)(const void* send, void* receive, std::size_t count,
                            ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) = nullptr;
  ncclResult_t (*Send)(const void* send, std::size_t count, ncclDataType_t type, int peer,
                       ncclComm_t comm, cudaStream_t stream) = nullptr;
  ncclResult_t (*Recv)(void* receive, std::size_t count, ncclDataType_t type, int peer,
                       ncclComm_t comm, cudaStream_t stream) = nullptr;
  const char* (*GetErrorString)(ncclResult_t result) = nullptr;
  const char* (*GetLastError)(ncclComm_t comm) = nullptr;

  // The CUDA runtime.
  cudaError_t (*RuntimeGetVersion)(int* version) = nullptr;
  cudaError_t (*DriverGetVersion)(int* version) = nullptr;
  cudaError_t (*GetDeviceCount)(int* count) = nullptr;
  cudaError_t (*SetDevice)(int device) = nullptr;
  cudaError_t (*Malloc)(void** memory, std::size_t bytes) = nullptr;
  cudaError_t (*MallocManaged)(void** memory, std::size_t bytes, unsigned flags) = nullptr;
  cudaError_t (*Free)(void* memory) = nullptr;
  cudaError_t (*HostAlloc)(void** memory, std::size_t bytes, unsigned flags) = nullptr;
  cudaError_t (*FreeHost)(void* memory) = nullptr;
  cudaError_t (*MemcpyAsync)(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                             cudaStream_t stream) = nullptr;
  cudaError_t (*MemsetAsync)(void* memory, int value, std::size_t bytes,
                             cudaStream_t stream) = nullptr;
  cudaError_t (*PointerGetAttributes)(cudaPointerAttributes* attributes,
                                      const void* pointer) = nullptr;
  cudaError_t (*StreamCreateWithFlags)(cudaStream_t* stream, unsigned flags) = nullptr;
  cudaError_t (*StreamDestroy)(cudaStream_t stream) = nullptr;
  cudaError_t (*StreamWaitEvent)(cudaStream_t stream, cudaEvent_t event,
                                 unsigned flags) = nullptr;
  cudaError_t (*EventCreateWithFlags)(cudaEvent_t* event, unsigned flags) = nullptr;
  cudaError_t (*EventRecord)(cudaEvent_t event, cudaStream_t stream) = nullptr;
  cudaError_t (*EventQuery)(cudaEvent_t event) = nullptr;
  cudaError_t (*EventDestroy)(cudaEvent_t event) = nullptr;
  cudaError_t (*GetLastCudaError)() = nullptr;  // cudaGetLastError: also clears it
  const char* (*GetCudaErrorString)(cudaError_t error) = nullptr;
};

// The files that the table is filled from; searched as dlopen() does.
struct NcclLibraries {
  std::string nccl = "libnccl.so.2";
  std::string cuda_runtime = "libcudart.so.13";
};

// Loads both and checks their versions, and that there is a GPU. They stay loaded.
// Errors: FailedPrecondition: a library or a function of it is missing, a version is
//   too old or of another major number than the headers, or there is no GPU or no
//   driver; with what was found and what to install.
absl::StatusOr<NcclApi> LoadNcclApi(const NcclLibraries& libraries);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_NCCL_API_H_
