#include "worker/memory/host_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/memory/huge_pages.h"

namespace lockstep {

absl::StatusOr<HostMemory> HostMemory::Allocate(std::int64_t bytes) {
  const std::int64_t mapped = HugePageAligned(std::max<std::int64_t>(bytes, 1));
  std::byte* const place = ReserveAligned(mapped);
  if (place != nullptr) {
    void* data = mmap(place, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, /*fd=*/-1, 0);
    if (data != MAP_FAILED) {
      PreferHugePages(place, mapped);
      return HostMemory(place, bytes, mapped);
    }
    munmap(place, mapped);
  }
  return absl::ResourceExhaustedError(absl::StrCat("there is no memory for ", bytes, " bytes"));
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, mapped_);
}

}  // namespace lockstep
