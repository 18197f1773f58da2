#include "worker/transport/host_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lockstep {

absl::StatusOr<HostMemory> HostMemory::Allocate(std::int64_t bytes) {
  bytes = std::max<std::int64_t>(bytes, 1);
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there is no memory for an arena of ", bytes, " bytes"));
  }
  return HostMemory(static_cast<std::byte*>(data), bytes);
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace lockstep
