// What the project takes for granted of NCCL's and the CUDA runtime's headers; compiles
// if it is so.
#include <cstddef>
#include <type_traits>

#include "worker/transport/nccl/nccl_api.h"
#include "worker/transport/nccl/nccl_functions.h"

namespace lockstep {
namespace {

// Each member of the table has the type of the function that it is loaded from:
// a static_cast picks an overload, of which the headers have some, of just that type.
#define LOCKSTEP_CHECK_TYPE(member, symbol)                                                 \
  static_assert(std::is_same_v<decltype(static_cast<decltype(NcclApi::member)>(&::symbol)), \
                               decltype(NcclApi::member)>);
LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_CHECK_TYPE)
LOCKSTEP_CUDA_FUNCTIONS(LOCKSTEP_CHECK_TYPE)
#undef LOCKSTEP_CHECK_TYPE

// The lists name all members: the table consists of nothing else.
#define LOCKSTEP_COUNT(member, symbol) +1
constexpr std::size_t kFunctions =
    0 LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_COUNT) LOCKSTEP_CUDA_FUNCTIONS(LOCKSTEP_COUNT);
static_assert(sizeof(NcclApi) == sizeof(void (*)()) * kFunctions);
#undef LOCKSTEP_COUNT

// Numbers that travel between ranks, are shown to people, or have to be those of older
// and newer libraries of the same major version.
static_assert(NCCL_MAJOR == 2 && NCCL_VERSION_CODE >= 22700);
static_assert(CUDART_VERSION / 1000 == 13);
static_assert(sizeof(ncclUniqueId) == 128 && NCCL_UNIQUE_ID_BYTES == 128);
static_assert(std::is_trivially_copyable_v<ncclUniqueId>);
static_assert(sizeof(ncclConfig_t) == 96);
static_assert(std::is_same_v<decltype(ncclConfig_t::blocking), int>);

static_assert(ncclSuccess == 0);
static_assert(ncclUnhandledCudaError == 1);
static_assert(ncclSystemError == 2);
static_assert(ncclInternalError == 3);
static_assert(ncclInvalidArgument == 4);
static_assert(ncclInvalidUsage == 5);
static_assert(ncclRemoteError == 6);
static_assert(ncclInProgress == 7);

static_assert(ncclInt8 == 0 && ncclUint8 == 1);
static_assert(ncclInt32 == 2 && ncclUint32 == 3);
static_assert(ncclInt64 == 4 && ncclUint64 == 5);
static_assert(ncclFloat16 == 6 && ncclFloat32 == 7 && ncclFloat64 == 8);
static_assert(ncclBfloat16 == 9);
static_assert(ncclFloat8e4m3 == 10 && ncclFloat8e5m2 == 11);

static_assert(cudaSuccess == 0);
static_assert(cudaErrorNoDevice == 100);
static_assert(cudaErrorNotReady == 600);
static_assert(cudaMemoryTypeUnregistered == 0 && cudaMemoryTypeHost == 1);
static_assert(cudaMemoryTypeDevice == 2 && cudaMemoryTypeManaged == 3);
static_assert(cudaMemcpyDefault == 4);
static_assert(cudaStreamNonBlocking == 1 && cudaEventDisableTiming == 2);

}  // namespace
}  // namespace lockstep
