// The layout of the first part of a shared segment: what the ranks of one epoch
// tell each other. Plain memory that several processes map; all of it starts as
// zeros.
//
//   ControlBlock | RankSlot x world size | scratch x world size | arenas ...
#ifndef LOCKSTEP_WORKER_TRANSPORT_SHM_CONTROL_BLOCK_H_
#define LOCKSTEP_WORKER_TRANSPORT_SHM_CONTROL_BLOCK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "worker/transport/call.h"

namespace lockstep::shm {

inline constexpr std::uint64_t kMagic = 0x4c4f434b53544550;  // "LOCKSTEP"
// Grows with every change of this layout: ranks of different builds refuse.
inline constexpr std::uint32_t kVersion = 3;

// Each rank's ring of pieces; in all it should stay within the caches.
inline constexpr std::int64_t kPieceBytes = 64 << 10;
inline constexpr std::uint64_t kPieces = 32;
inline constexpr std::int64_t kScratchBytes = kPieceBytes * static_cast<std::int64_t>(kPieces);

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kMaxReasonBytes = 2000;

// The first error of any rank, which ends the epoch for all.
struct alignas(kCacheLine) Poison {
  enum State : std::uint32_t { kNone = 0, kBeingWritten = 1, kSet = 2 };
  std::atomic<std::uint32_t> state;
  std::int32_t code;  // an absl::StatusCode
  std::uint32_t reason_bytes;
  char reason[kMaxReasonBytes];
};

// What sleepers sleep on.
struct alignas(kCacheLine) Bell {
  std::atomic<std::uint32_t> rings;  // the futex word
  std::atomic<std::uint32_t> sleepers;
};

struct alignas(kCacheLine) ControlBlock {
  std::uint64_t magic;
  std::uint64_t nonce;
  std::int64_t epoch;
  std::uint32_t version;
  std::int32_t world_size;
  Bell bell;
  Poison poison;
};

// A rank writes only its own slot. The counters only grow; each has a cache line
// of its own.
struct alignas(kCacheLine) RankSlot {
  std::atomic<std::int32_t> pid;  // 0: not attached yet
  std::atomic<std::uint32_t> left;  // 1: the rank has destroyed its transport
  alignas(kCacheLine) std::atomic<std::uint64_t> arrived;   // barriers
  alignas(kCacheLine) std::atomic<std::uint64_t> produced;  // pieces in its scratch
  alignas(kCacheLine) std::atomic<std::uint64_t> reduced;   // pieces, its part of them
  alignas(kCacheLine) std::atomic<std::uint64_t> consumed;  // pieces it has taken
  // By parity of the barrier: a rank writes one again only after all have been
  // at the barrier in between, and so have read it.
  alignas(kCacheLine) Call calls[2];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace lockstep::shm

#endif  // LOCKSTEP_WORKER_TRANSPORT_SHM_CONTROL_BLOCK_H_
