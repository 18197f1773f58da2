// Segment: memory without a name that several processes map.
//
// A memfd: it is gone as soon as no process holds it, however they ended. Peers
// open it through /proc/<pid>/fd, so they must run on the same host, as the same
// user. Sealed against shrinking, so that no peer can take pages away (SIGBUS).
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_SHM_SEGMENT_H_
#define LOCKSTEP_WORKER_TRANSPORT_SHM_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::shm {

class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, std::int64_t bytes) : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Segment& operator=(Segment&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Segment();

  // Errors: ResourceExhausted: no memory or descriptors.
  static absl::StatusOr<Segment> Create(std::int64_t bytes);
  // Errors: FailedPrecondition: this process cannot open it; says why.
  static absl::StatusOr<Segment> Open(std::int32_t pid, std::int32_t fd);

  std::int32_t fd() const { return fd_; }
  absl::StatusOr<std::int64_t> Size() const;

  // Makes it at least `bytes` long, of zeros that are really there.
  // Errors: ResourceExhausted: there is not that much memory.
  absl::Status Grow(std::int64_t bytes) const;

  // `offset`: a multiple of the page size. Errors: ResourceExhausted.
  absl::StatusOr<Mapping> Map(std::int64_t offset, std::int64_t bytes) const;

 private:
  explicit Segment(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace lockstep::shm

#endif  // LOCKSTEP_WORKER_TRANSPORT_SHM_SEGMENT_H_
