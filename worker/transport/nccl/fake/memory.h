// The allocations of the fake: whose they are and who may touch them.
//
// Part of World, whose mutex is held by all callers.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_MEMORY_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_MEMORY_H_

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/transport/nccl/nccl_api.h"

namespace lockstep::fake_nccl {

class Memory {
 public:
  enum class Kind { kDevice, kNccl, kManaged, kPinned };

  struct Allocation {
    struct Deleter {
      void operator()(std::byte* memory) const;
    };
    std::unique_ptr<std::byte, Deleter> memory;
    std::size_t bytes;
    Kind kind;
    int device;  // that of the thread that allocated it
  };

  // Null if the host has no memory left. Filled with garbage; 0 bytes are one byte.
  void* Allocate(Kind kind, int device, std::size_t bytes);

  // False if `memory` is not the start of an allocation of that kind.
  bool Free(Kind kind, void* memory);

  // The allocation that `pointer` lies in; null if there is none.
  const Allocation* Find(const void* pointer) const;

  // Why the GPU may not touch the range: it is no memory of its own, nor managed or pinned.
  std::optional<std::string> WhyUnusable(int device, const void* pointer,
                                         std::size_t bytes) const;

  std::vector<std::string> Leaks() const;

 private:
  std::map<const std::byte*, Allocation> allocations_;  // by start
};

}  // namespace lockstep::fake_nccl

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_MEMORY_H_
