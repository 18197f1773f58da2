#include "worker/transport/nccl/device_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/transport/nccl/errors.h"

namespace lockstep::nccl_link {
namespace {

// No memory is an address as well, and differs from others.
constexpr std::int64_t kLeastBytes = 256;

}  // namespace

absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(const NcclApi* api, MemoryKind kind,
                                                    std::int64_t bytes) {
  const std::size_t size = static_cast<std::size_t>(std::max(bytes, kLeastBytes));
  void* data = nullptr;
  if (kind == MemoryKind::kNccl && api->MemAlloc(&data, size) != ncclSuccess) {
    // Plain memory may still be there; if not, CUDA says so more clearly than NCCL does.
    api->GetLastCudaError();
    data = nullptr;
    kind = MemoryKind::kDevice;
  }
  cudaError_t error = cudaSuccess;
  switch (kind) {
    case MemoryKind::kNccl:
      break;
    case MemoryKind::kDevice:
      error = api->Malloc(&data, size);
      break;
    case MemoryKind::kManaged:
      error = api->MallocManaged(&data, size, cudaMemAttachGlobal);
      break;
    case MemoryKind::kPinned:
      error = api->HostAlloc(&data, size, cudaHostAllocDefault);
      break;
  }
  LOCKSTEP_RETURN_IF_ERROR(FromCuda(*api, error, absl::StrCat("allocation of ", size, " bytes")));
  DeviceMemory memory;
  memory.api_ = api;
  memory.kind_ = kind;
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  return memory;
}

absl::Status DeviceMemory::Grow(const NcclApi* api, MemoryKind kind, std::int64_t bytes) {
  if (data_ != nullptr && bytes_ >= bytes) return absl::OkStatus();
  Free();
  LOCKSTEP_ASSIGN_OR_RETURN(*this, Allocate(api, kind, bytes));
  return absl::OkStatus();
}

DeviceMemory::~DeviceMemory() { Free(); }

void DeviceMemory::Free() {
  if (data_ == nullptr) return;
  switch (kind_) {
    case MemoryKind::kNccl:
      api_->MemFree(data_);
      break;
    case MemoryKind::kDevice:
    case MemoryKind::kManaged:
      api_->Free(data_);
      break;
    case MemoryKind::kPinned:
      api_->FreeHost(data_);
      break;
  }
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace lockstep::nccl_link
