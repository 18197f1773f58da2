// Pipeline: rounds of messages in which owners combine what all ranks send them and
// spread what they made of it, with several rounds under way.
//
// In each round every rank owns one part. A rank sends its version of each part to the
// part's owner, who combines all versions; then the owner sends the part to all. Either
// half may be left out. Memory that needs no packing is sent as it lies.
//
//   begin(r) -> versions travel -> combine(r) -> parts travel -> end(r)
//
// Every rank sends and receives P(N-1)/N bytes in each half, as little as can do.
#ifndef LOCKSTEP_WORKER_TRANSPORT_GLOO_PIPELINE_H_
#define LOCKSTEP_WORKER_TRANSPORT_GLOO_PIPELINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mono_time.h"
#include "worker/transport/gloo/inbox.h"
#include "worker/transport/gloo/links.h"

namespace lockstep::gloo_links {

// How many rounds are begun and not ended, at most.
inline constexpr std::int64_t kRoundsUnderWay = 8;
// Of these, how many are begun before the first is combined.
inline constexpr std::int64_t kRoundsAhead = kPartsAhead;

// Of one owner in one round, on this rank. `version` may be `part`: it has arrived at
// the owner before the part comes back.
struct Piece {
  const std::byte* version = nullptr;
  std::int64_t version_bytes = 0;
  std::byte* part = nullptr;
  std::int64_t part_bytes = 0;
};

// Equal on all ranks but for the memory. Each function is called in order of rounds.
struct Rounds {
  std::int64_t count = 0;
  std::int64_t version_bytes = 0;  // at most
  bool combines = false;        // versions are sent
  bool spreads = false;         // parts are sent
  std::function<Piece(std::int64_t round, int owner)> piece;
  std::function<void(std::int64_t round)> begin = nullptr;
  // Makes this rank's part, unless it is empty, of the versions by rank, if they are
  // sent.
  std::function<void(std::int64_t round, std::span<const std::byte* const> versions)> combine =
      nullptr;
  std::function<void(std::int64_t round)> end = nullptr;
};

// Used by one thread.
class Pipeline {
 public:
  // Versions are received in `inbox` while it runs.
  Pipeline(Links* links, Inbox* inbox, int rank, int world_size)
      : links_(*links), inbox_(*inbox), rank_(rank), world_size_(world_size) {}

  // Errors: as Links::Await().
  absl::Status Run(const Rounds& rounds, MonoTime deadline);

 private:
  struct Round {
    std::vector<Links::Ticket> versions;  // that come
    std::vector<Links::Ticket> others;    // all else
  };

  absl::Status Begin(const Rounds& rounds, std::int64_t round);
  absl::Status Combine(const Rounds& rounds, std::int64_t round, MonoTime deadline);
  absl::Status End(const Rounds& rounds, std::int64_t round, MonoTime deadline);

  Links& links_;
  Inbox& inbox_;
  const int rank_;
  const int world_size_;
  std::vector<Round> under_way_;
};

}  // namespace lockstep::gloo_links

#endif  // LOCKSTEP_WORKER_TRANSPORT_GLOO_PIPELINE_H_
