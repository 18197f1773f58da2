// Huge pages: fewer misses of the address translation on long ranges, which then
// stream some 15 % faster.
//
// All of it is best effort: without support of the kernel, memory is in small pages
// and everything works as well. Thread-safe.
#ifndef LOCKSTEP_WORKER_MEMORY_HUGE_PAGES_H_
#define LOCKSTEP_WORKER_MEMORY_HUGE_PAGES_H_

#include <cstddef>
#include <cstdint>

namespace lockstep {

inline constexpr std::int64_t kHugePageBytes = std::int64_t{2} << 20;

// Rounded up to a multiple of `to` > 0.
std::int64_t RoundUp(std::int64_t bytes, std::int64_t to);

// Rounded up to whole pages of this host.
std::int64_t PageAligned(std::int64_t bytes);

// Rounded up to where the memory behind it may be in huge pages as well; to small
// pages where it is too short to gain by that.
std::int64_t HugePageAligned(std::int64_t bytes);

// Address space of `bytes` that starts at a huge page's border, for a mapping to be
// put there by MAP_FIXED; null if there is none. The caller unmaps it.
std::byte* ReserveAligned(std::int64_t bytes);

// For private memory that nobody has touched yet.
void PreferHugePages(std::byte* data, std::int64_t bytes);

// Moves shared memory into huge pages, for all who map it. Afterwards nothing of it
// counts as touched by this process.
void CollapseIntoHugePages(std::byte* data, std::int64_t bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_MEMORY_HUGE_PAGES_H_
