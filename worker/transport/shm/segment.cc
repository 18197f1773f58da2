#include "worker/transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/memory/huge_pages.h"

namespace lockstep::shm {
namespace {

// The kernel's estimate of what can be had without swapping; without it no bound.
// Filling a memfd beyond what is there does not fail: it summons the OOM killer.
std::int64_t AvailableBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return std::numeric_limits<std::int64_t>::max();
}

}  // namespace

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Segment::~Segment() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<Segment> Segment::Create(std::int64_t bytes) {
  Segment segment(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (segment.fd_ < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory cannot be made: memfd_create: ", std::strerror(errno)));
  }
  LOCKSTEP_RETURN_IF_ERROR(segment.Grow(bytes));
  if (fcntl(segment.fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return absl::InternalError(
        absl::StrCat("shared memory cannot be sealed: ", std::strerror(errno)));
  }
  return segment;
}

absl::StatusOr<Segment> Segment::Open(std::int32_t pid, std::int32_t fd) {
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", fd);
  Segment segment(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (segment.fd_ < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank 0's shared memory cannot be opened at ", path, ": ",
                     std::strerror(errno),
                     "; all ranks must run on one host as one user, or use another transport"));
  }
  return segment;
}

absl::StatusOr<std::int64_t> Segment::Size() const {
  struct stat status;
  if (fstat(fd_, &status) != 0) {
    return absl::InternalError(absl::StrCat("fstat of shared memory: ", std::strerror(errno)));
  }
  return status.st_size;
}

absl::Status Segment::Grow(std::int64_t bytes) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t size, Size());
  if (bytes <= size) return absl::OkStatus();
  const std::int64_t available = AvailableBytes();
  if (bytes - size > available) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "shared memory of ", bytes - size, " more bytes is wanted, ", available, " are available"));
  }
  int error = 0;
  do {
    error = posix_fallocate(fd_, size, bytes - size);
  } while (error == EINTR);
  if (error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "shared memory cannot grow to ", bytes, " bytes: ", std::strerror(error)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Mapping> Segment::Map(std::int64_t offset, std::int64_t bytes) const {
  // Both must be aligned alike for huge pages.
  std::byte* const place = bytes >= kHugePageBytes ? ReserveAligned(bytes) : nullptr;
  void* data = mmap(place, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | (place == nullptr ? 0 : MAP_FIXED), fd_, offset);
  if (data == MAP_FAILED) {
    if (place != nullptr) munmap(place, bytes);
    return absl::ResourceExhaustedError(absl::StrCat(
        "shared memory of ", bytes, " bytes cannot be mapped: ", std::strerror(errno)));
  }
  return Mapping(static_cast<std::byte*>(data), bytes);
}

}  // namespace lockstep::shm
