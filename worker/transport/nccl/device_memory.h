// DeviceMemory: memory that the functions of a table allocate, and that is freed with it.
//
// Freeing it may wait for the device, so nothing may be under way that does not end.
// Thread-compatible; the device must be the current one of the thread.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_DEVICE_MEMORY_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "worker/transport/nccl/nccl_api.h"

namespace lockstep::nccl_link {

enum class MemoryKind {
  kNccl,     // the device's, such that NCCL can register it
  kDevice,   // the device's
  kManaged,  // of both
  kPinned,   // the host's, that the device copies to and from directly
};

class DeviceMemory {
 public:
  // Aligned to 256 bytes. `api` must outlive it. Where NCCL has none to register, kNccl
  // becomes kDevice. Errors: ResourceExhausted: there is not that much.
  static absl::StatusOr<DeviceMemory> Allocate(const NcclApi* api, MemoryKind kind,
                                               std::int64_t bytes);

  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(kind_, other.kind_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory();

  MemoryKind kind() const { return kind_; }
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

  // Makes it anew if it has less than `bytes`; what it held is lost.
  absl::Status Grow(const NcclApi* api, MemoryKind kind, std::int64_t bytes);

 private:
  void Free();

  const NcclApi* api_ = nullptr;
  MemoryKind kind_ = MemoryKind::kDevice;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_DEVICE_MEMORY_H_
