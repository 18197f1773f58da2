// Inbox: where an owner receives the peers' versions of its parts, a few at a time.
//
// Used by one thread at a time, for one thing at a time.
#ifndef LOCKSTEP_WORKER_TRANSPORT_GLOO_INBOX_H_
#define LOCKSTEP_WORKER_TRANSPORT_GLOO_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::gloo_links {

// Of how many parts in a row an owner keeps the versions of each peer.
inline constexpr std::int64_t kPartsAhead = 4;

class Inbox {
 public:
  Inbox(int rank, int world_size) : rank_(rank), peers_(world_size - 1) {}

  // Before messages of up to so many bytes are received; nothing is under way.
  void MakeRoom(std::int64_t version_bytes) {
    version_bytes_ = version_bytes;
    const auto needed = static_cast<std::size_t>(kPartsAhead * peers_ * version_bytes);
    if (memory_.size() < needed) memory_.resize(needed);
  }

  // For the version that `peer`, another rank, has of part number `part`: the place is
  // free again for the part that comes kPartsAhead later.
  std::byte* Version(std::int64_t part, int peer) {
    const std::int64_t slot = part % kPartsAhead * peers_ + (peer < rank_ ? peer : peer - 1);
    return memory_.data() + slot * version_bytes_;
  }

 private:
  const int rank_;
  const std::int64_t peers_;
  std::int64_t version_bytes_ = 0;
  std::vector<std::byte> memory_;
};

}  // namespace lockstep::gloo_links

#endif  // LOCKSTEP_WORKER_TRANSPORT_GLOO_INBOX_H_
