// Staging: the memory beside tensors and arenas that operations of one transport use, one at a
// time, and how they are cut so that it stays bounded.
//
// It grows to what the largest operation needs. Thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_STAGING_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_STAGING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "worker/transport/nccl/device_memory.h"
#include "worker/transport/nccl/nccl_api.h"

namespace lockstep::nccl_link {

// What is put on a stream blocks the thread once its queue is full, and a queue behind a
// collective that hangs does not empty. So at most so many pieces lie there at once.
inline constexpr int kMaxUnderWay = 8;

class Staging {
 public:
  // `piece_bytes`: of what all ranks together bring to this one at once; a multiple of 16.
  // `kind`: of OnDevice(), where sums are made: such that the DeviceMath reaches it.
  Staging(const NcclApi* api, MemoryKind kind, std::int64_t piece_bytes)
      : api_(api), kind_(kind), piece_bytes_(piece_bytes) {}

  std::int64_t piece_bytes() const { return piece_bytes_; }
  // Of what each of `sources` ranks brings at once; a multiple of 16.
  std::int64_t BytesOf(int sources) const {
    return std::max<std::int64_t>(piece_bytes_ / std::max(sources, 1) / 16 * 16, 16);
  }

  // What was there may be lost; nothing may be under way in it.
  absl::StatusOr<std::byte*> OnDevice(std::int64_t bytes) {
    LOCKSTEP_RETURN_IF_ERROR(device_.Grow(api_, kind_, bytes));
    return device_.data();
  }
  absl::StatusOr<std::byte*> OnHost(std::int64_t bytes) {
    LOCKSTEP_RETURN_IF_ERROR(host_.Grow(api_, MemoryKind::kPinned, bytes));
    return host_.data();
  }

 private:
  const NcclApi* const api_;
  const MemoryKind kind_;
  const std::int64_t piece_bytes_;
  DeviceMemory device_;
  DeviceMemory host_;
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_STAGING_H_
