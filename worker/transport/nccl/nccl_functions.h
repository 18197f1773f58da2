// The members of NcclApi and the names that the libraries export them by: one list
// for the loader, the check against the real headers, and the tests' fake.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_NCCL_FUNCTIONS_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_NCCL_FUNCTIONS_H_

// FUNCTION(member of NcclApi, exported name)
#define LOCKSTEP_NCCL_FUNCTIONS(FUNCTION)              \
  FUNCTION(GetVersion, ncclGetVersion)                 \
  FUNCTION(GetUniqueId, ncclGetUniqueId)               \
  FUNCTION(CommInitRankConfig, ncclCommInitRankConfig) \
  FUNCTION(CommGetAsyncError, ncclCommGetAsyncError)   \
  FUNCTION(CommAbort, ncclCommAbort)                   \
  FUNCTION(CommRegister, ncclCommRegister)             \
  FUNCTION(MemAlloc, ncclMemAlloc)                     \
  FUNCTION(MemFree, ncclMemFree)                       \
  FUNCTION(GroupStart, ncclGroupStart)                 \
  FUNCTION(GroupEnd, ncclGroupEnd)                     \
  FUNCTION(Broadcast, ncclBroadcast)                   \
  FUNCTION(AllGather, ncclAllGather)                   \
  FUNCTION(Send, ncclSend)                             \
  FUNCTION(Recv, ncclRecv)                             \
  FUNCTION(GetErrorString, ncclGetErrorString)         \
  FUNCTION(GetLastError, ncclGetLastError)

#define LOCKSTEP_CUDA_FUNCTIONS(FUNCTION)                    \
  FUNCTION(RuntimeGetVersion, cudaRuntimeGetVersion)         \
  FUNCTION(DriverGetVersion, cudaDriverGetVersion)           \
  FUNCTION(GetDeviceCount, cudaGetDeviceCount)               \
  FUNCTION(SetDevice, cudaSetDevice)                         \
  FUNCTION(Malloc, cudaMalloc)                               \
  FUNCTION(MallocManaged, cudaMallocManaged)                 \
  FUNCTION(Free, cudaFree)                                   \
  FUNCTION(HostAlloc, cudaHostAlloc)                         \
  FUNCTION(FreeHost, cudaFreeHost)                           \
  FUNCTION(MemcpyAsync, cudaMemcpyAsync)                     \
  FUNCTION(MemsetAsync, cudaMemsetAsync)                     \
  FUNCTION(PointerGetAttributes, cudaPointerGetAttributes)   \
  FUNCTION(StreamCreateWithFlags, cudaStreamCreateWithFlags) \
  FUNCTION(StreamDestroy, cudaStreamDestroy)                 \
  FUNCTION(StreamWaitEvent, cudaStreamWaitEvent)             \
  FUNCTION(EventCreateWithFlags, cudaEventCreateWithFlags)   \
  FUNCTION(EventRecord, cudaEventRecord)                     \
  FUNCTION(EventQuery, cudaEventQuery)                       \
  FUNCTION(EventDestroy, cudaEventDestroy)                   \
  FUNCTION(GetLastCudaError, cudaGetLastError)               \
  FUNCTION(GetCudaErrorString, cudaGetErrorString)

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_NCCL_FUNCTIONS_H_
