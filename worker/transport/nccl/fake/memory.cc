#include "worker/transport/nccl/fake/memory.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::fake_nccl {
namespace {

constexpr std::size_t kAlignment = 256;  // what cudaMalloc promises

const char* NameOf(Memory::Kind kind) {
  switch (kind) {
    case Memory::Kind::kDevice:
      return "Malloc";
    case Memory::Kind::kNccl:
      return "MemAlloc";
    case Memory::Kind::kManaged:
      return "MallocManaged";
    case Memory::Kind::kPinned:
      return "HostAlloc";
  }
  return "?";
}

}  // namespace

void Memory::Allocation::Deleter::operator()(std::byte* memory) const { std::free(memory); }

void* Memory::Allocate(Kind kind, int device, std::size_t bytes) {
  const std::size_t size = bytes == 0 ? 1 : bytes;
  const std::size_t padded = (size + kAlignment - 1) / kAlignment * kAlignment;
  if (padded < size) return nullptr;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, padded));
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0xcd, size);
  allocations_[memory] = {std::unique_ptr<std::byte, Allocation::Deleter>(memory), size, kind,
                          device};
  return memory;
}

bool Memory::Free(Kind kind, void* memory) {
  const auto found = allocations_.find(static_cast<std::byte*>(memory));
  if (found == allocations_.end()) return false;
  const bool both_of_cuda = kind == Kind::kDevice && found->second.kind == Kind::kManaged;
  if (found->second.kind != kind && !both_of_cuda) return false;
  allocations_.erase(found);
  return true;
}

const Memory::Allocation* Memory::Find(const void* pointer) const {
  const auto* address = static_cast<const std::byte*>(pointer);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  const auto& [start, allocation] = *std::prev(after);
  return address < start + allocation.bytes ? &allocation : nullptr;
}

std::optional<std::string> Memory::WhyUnusable(int device, const void* pointer,
                                               std::size_t bytes) const {
  const Allocation* allocation = Find(pointer);
  if (allocation == nullptr) return "memory that was freed or that no GPU can reach";
  const std::size_t offset = static_cast<const std::byte*>(pointer) - allocation->memory.get();
  if (bytes > allocation->bytes - offset) {
    return absl::StrCat(bytes, " bytes from byte ", offset, " of an allocation of ",
                        allocation->bytes, " bytes");
  }
  const bool only_own = allocation->kind == Kind::kDevice || allocation->kind == Kind::kNccl;
  if (only_own && allocation->device != device) {
    return absl::StrCat("memory of GPU ", allocation->device);
  }
  return std::nullopt;
}

std::vector<std::string> Memory::Leaks() const {
  std::vector<std::string> leaks;
  for (const auto& [start, allocation] : allocations_) {
    leaks.push_back(absl::StrCat("GPU ", allocation.device, ": ", allocation.bytes, " bytes of ",
                                 NameOf(allocation.kind)));
  }
  return leaks;
}

}  // namespace lockstep::fake_nccl
