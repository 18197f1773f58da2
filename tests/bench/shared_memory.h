// Memory that the ranks of a group share apart from Lockstep: a barrier to start
// repetitions together, and room for the bandwidth probe.
//
// Of one huge page for the barrier, then the room, in pages as Lockstep's are.
#ifndef LOCKSTEP_TESTS_BENCH_SHARED_MEMORY_H_
#define LOCKSTEP_TESTS_BENCH_SHARED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lockstep {

class SharedMemory {
 public:
  // Anonymous, zeroed; lives as long as this object or a mapping.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(std::int64_t room_bytes);
  // By another process, at the path() of the one that created it.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Open(const std::string& path);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::string path() const;  // of the creator's descriptor
  std::byte* room() const;

  // Waits until `world_size` ranks are here, and leaves within microseconds of the
  // others where each has a core. Errors: DeadlineExceeded.
  absl::Status Barrier(int world_size, absl::Duration timeout);

 private:
  SharedMemory(int fd, std::byte* data, std::int64_t bytes) : fd_(fd), data_(data), bytes_(bytes) {}
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Map(int fd);

  const int fd_;
  std::byte* const data_;
  const std::int64_t bytes_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_SHARED_MEMORY_H_
