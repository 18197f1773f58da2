// Zeroed memory of one process, page aligned, for arenas that nobody shares.
//
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_HOST_MEMORY_H_
#define LOCKSTEP_WORKER_TRANSPORT_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace lockstep {

class HostMemory {
 public:
  // Errors: ResourceExhausted: there is not that much memory.
  static absl::StatusOr<HostMemory> Allocate(std::int64_t bytes);

  HostMemory(HostMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HostMemory& operator=(HostMemory&&) = delete;
  ~HostMemory();

  std::byte* data() const { return data_; }

 private:
  HostMemory(std::byte* data, std::int64_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_;
  std::int64_t bytes_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_HOST_MEMORY_H_
