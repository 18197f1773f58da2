// Zeroed memory of one process, page aligned, in huge pages where the kernel has them.
//
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_MEMORY_HOST_MEMORY_H_
#define LOCKSTEP_WORKER_MEMORY_HOST_MEMORY_H_

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
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        mapped_(std::exchange(other.mapped_, 0)) {}
  HostMemory& operator=(HostMemory&&) = delete;
  ~HostMemory();

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  HostMemory(std::byte* data, std::int64_t bytes, std::int64_t mapped)
      : data_(data), bytes_(bytes), mapped_(mapped) {}

  std::byte* data_;
  std::int64_t bytes_;
  std::int64_t mapped_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_MEMORY_HOST_MEMORY_H_
