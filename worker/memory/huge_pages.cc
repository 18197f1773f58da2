#include "worker/memory/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Newer than the C library's headers; kernels before 6.1 refuse it.
constexpr int kMadvCollapse = 25;

}  // namespace

std::int64_t RoundUp(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

std::int64_t PageAligned(std::int64_t bytes) { return RoundUp(bytes, sysconf(_SC_PAGESIZE)); }

std::int64_t HugePageAligned(std::int64_t bytes) {
  return bytes < kHugePageBytes ? PageAligned(bytes) : RoundUp(bytes, kHugePageBytes);
}

std::byte* ReserveAligned(std::int64_t bytes) {
  bytes = PageAligned(bytes);
  const std::int64_t reserved = bytes + kHugePageBytes;
  void* start = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     /*fd=*/-1, 0);
  if (start == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(start);
  const auto misplaced = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) %
                                                   kHugePageBytes);
  std::byte* const aligned = begin + (misplaced == 0 ? 0 : kHugePageBytes - misplaced);
  std::byte* const end = begin + reserved;
  if (aligned > begin) munmap(begin, aligned - begin);
  if (aligned + bytes < end) munmap(aligned + bytes, end - aligned - bytes);
  return aligned;
}

void PreferHugePages(std::byte* data, std::int64_t bytes) {
  madvise(data, bytes, MADV_HUGEPAGE);
}

void CollapseIntoHugePages(std::byte* data, std::int64_t bytes) {
  const std::int64_t whole = bytes / kHugePageBytes * kHugePageBytes;
  if (whole == 0) return;
  madvise(data, whole, kMadvCollapse);
  madvise(data, whole, MADV_DONTNEED);
}

}  // namespace lockstep
