// The fake under the names of the real functions, as a library that can be loaded.
// Macros say what it pretends to be.
#include "worker/transport/nccl/fake/fake_nccl.h"

#ifndef FAKE_DEVICES
#define FAKE_DEVICES 2
#endif
#ifndef FAKE_NCCL_VERSION
#define FAKE_NCCL_VERSION NCCL_VERSION_CODE
#endif
#ifndef FAKE_RUNTIME_VERSION
#define FAKE_RUNTIME_VERSION CUDART_VERSION
#endif
#ifndef FAKE_DRIVER_VERSION
#define FAKE_DRIVER_VERSION CUDART_VERSION
#endif

namespace {

// From when it is loaded until the process ends.
const lockstep::FakeNccl* const fake =
    new lockstep::FakeNccl({.devices = FAKE_DEVICES,
                            .nccl_version = FAKE_NCCL_VERSION,
                            .runtime_version = FAKE_RUNTIME_VERSION,
                            .driver_version = FAKE_DRIVER_VERSION});
const lockstep::NcclApi api = lockstep::FakeNccl::Api();

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) { return api.GetVersion(version); }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return api.GetUniqueId(id); }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return api.CommInitRankConfig(comm, ranks, id, rank, config);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return api.CommGetAsyncError(comm, error);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) { return api.CommAbort(comm); }
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buffer, size_t bytes, void** handle) {
  return api.CommRegister(comm, buffer, bytes, handle);
}
ncclResult_t ncclMemAlloc(void** memory, size_t bytes) { return api.MemAlloc(memory, bytes); }
ncclResult_t ncclMemFree(void* memory) { return api.MemFree(memory); }
ncclResult_t ncclGroupStart() { return api.GroupStart(); }
ncclResult_t ncclGroupEnd() { return api.GroupEnd(); }
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
#ifdef FAKE_BROADCASTS_NOTHING
  return ncclSuccess;
#endif
  return api.Broadcast(send, receive, count, type, root, comm, stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return api.AllGather(send, receive, count, type, comm, stream);
}
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return api.Send(send, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return api.Recv(receive, count, type, peer, comm, stream);
}
const char* ncclGetErrorString(ncclResult_t result) { return api.GetErrorString(result); }
const char* ncclGetLastError(ncclComm_t comm) { return api.GetLastError(comm); }

cudaError_t cudaRuntimeGetVersion(int* version) { return api.RuntimeGetVersion(version); }
cudaError_t cudaDriverGetVersion(int* version) { return api.DriverGetVersion(version); }
cudaError_t cudaGetDeviceCount(int* count) { return api.GetDeviceCount(count); }
cudaError_t cudaSetDevice(int device) { return api.SetDevice(device); }
cudaError_t cudaMalloc(void** memory, size_t bytes) { return api.Malloc(memory, bytes); }
cudaError_t cudaMallocManaged(void** memory, size_t bytes, unsigned flags) {
  return api.MallocManaged(memory, bytes, flags);
}
cudaError_t cudaFree(void* memory) { return api.Free(memory); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return api.HostAlloc(memory, bytes, flags);
}
cudaError_t cudaFreeHost(void* memory) { return api.FreeHost(memory); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return api.MemcpyAsync(to, from, bytes, kind, stream);
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return api.MemsetAsync(memory, value, bytes, stream);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return api.PointerGetAttributes(attributes, pointer);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return api.StreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return api.StreamDestroy(stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return api.StreamWaitEvent(stream, event, flags);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return api.EventCreateWithFlags(event, flags);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return api.EventRecord(event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return api.EventQuery(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return api.EventDestroy(event); }
cudaError_t cudaGetLastError() { return api.GetLastCudaError(); }
const char* cudaGetErrorString(cudaError_t error) { return api.GetCudaErrorString(error); }

}  // extern "C"
