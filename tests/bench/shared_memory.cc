#include "tests/bench/shared_memory.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/memory/huge_pages.h"

namespace lockstep {
namespace {

// The room behind it may be in huge pages.
constexpr std::int64_t kBarrierBytes = kHugePageBytes;
// Then others may need the core more.
constexpr int kSpins = 2000;

struct BarrierState {
  std::atomic<std::uint32_t> arrived;
  alignas(64) std::atomic<std::uint32_t> round;
};
static_assert(sizeof(BarrierState) <= kBarrierBytes);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

absl::Status SystemError(const char* what) {
  return absl::InternalError(absl::StrCat("shared memory: ", what, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create(std::int64_t room_bytes) {
  const int fd = memfd_create("lockstep-bench", MFD_CLOEXEC);
  if (fd < 0) return SystemError("memfd_create");
  if (posix_fallocate(fd, 0, kBarrierBytes + HugePageAligned(room_bytes)) != 0) {
    close(fd);
    return SystemError("posix_fallocate");
  }
  auto memory = Map(fd);
  if (memory.ok()) CollapseIntoHugePages((*memory)->room(), HugePageAligned(room_bytes));
  return memory;
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return SystemError(path.c_str());
  return Map(fd);
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Map(int fd) {
  struct stat status = {};
  void* data = MAP_FAILED;
  if (fstat(fd, &status) == 0) {
    std::byte* const place = ReserveAligned(status.st_size);
    data = mmap(place, status.st_size, PROT_READ | PROT_WRITE,
                MAP_SHARED | (place == nullptr ? 0 : MAP_FIXED), fd, 0);
  }
  if (data == MAP_FAILED) {
    const absl::Status error = SystemError("mmap");
    close(fd);
    return error;
  }
  return std::unique_ptr<SharedMemory>(
      new SharedMemory(fd, static_cast<std::byte*>(data), status.st_size));
}

SharedMemory::~SharedMemory() {
  munmap(data_, bytes_);
  close(fd_);
}

std::string SharedMemory::path() const { return absl::StrCat("/proc/", getpid(), "/fd/", fd_); }

std::byte* SharedMemory::room() const { return data_ + kBarrierBytes; }

absl::Status SharedMemory::Barrier(int world_size, absl::Duration timeout) {
  // Zeroed memory is a barrier that nobody has reached.
  auto* state = reinterpret_cast<BarrierState*>(data_);
  const std::uint32_t round = state->round.load(std::memory_order_acquire);
  if (state->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
      static_cast<std::uint32_t>(world_size)) {
    state->arrived.store(0, std::memory_order_relaxed);
    state->round.store(round + 1, std::memory_order_release);
    return absl::OkStatus();
  }
  const absl::Time end = absl::Now() + timeout;
  while (true) {
    for (int i = 0; i < kSpins; ++i) {
      if (state->round.load(std::memory_order_acquire) != round) return absl::OkStatus();
    }
    sched_yield();
    if (absl::Now() > end) {
      return absl::DeadlineExceededError(absl::StrCat(
          state->arrived.load(std::memory_order_relaxed), " of ", world_size,
          " ranks reached the barrier within ", absl::FormatDuration(timeout)));
    }
  }
}

}  // namespace lockstep
