#include "tests/sim/fabric.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace lockstep::sim {

Fabric::Edge& Fabric::edge(const std::string& session, const std::string& from,
                           const std::string& to) {
  return edges_[{options_.fences ? session : "", from, to}];
}

MonoTime Fabric::Arrival(const std::string& from, const std::string& to, Edge& edge) {
  const absl::Duration delay =
      scheduler_.OneIn(3000) ? scheduler_.Random(absl::Milliseconds(1), absl::Milliseconds(200))
                            : scheduler_.Random(absl::Microseconds(20), absl::Microseconds(500));
  edge.last = std::max(edge.last, scheduler_.now() + delay);
  const auto blocked = blocked_.find({from, to});
  if (blocked != blocked_.end()) edge.last = std::max(edge.last, blocked->second);
  return edge.last;
}

void Fabric::Send(const std::string& session, const std::string& from, const std::string& to,
                  std::string bytes) {
  Edge* const way = &edge(session, from, to);
  const std::int64_t number = way->sent++;
  scheduler_.At(Arrival(from, to, *way), nullptr,
                [this, way, number, bytes = std::move(bytes)]() mutable {
                  if (number >= way->cut) return;
                  way->number = number + 1;
                  way->came.push_back(std::move(bytes));
                  if (way->receiver != nullptr) scheduler_.Wake(way->receiver);
                });
}

void Fabric::Close(const std::string& session, const std::string& from, const std::string& to,
                   const absl::Status& why) {
  Edge* const way = &edge(session, from, to);
  scheduler_.At(Arrival(from, to, *way), nullptr, [this, way, why] {
    way->closed = why;
    if (way->receiver != nullptr) scheduler_.Wake(way->receiver);
  });
}

absl::StatusOr<std::shared_ptr<HostMemory>> Fabric::Shared(const std::string& session, int index,
                                                           std::int64_t bytes) {
  std::shared_ptr<HostMemory>& memory = shared_[{session, index}];
  if (memory == nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(HostMemory made, HostMemory::Allocate(bytes));
    memory = std::make_shared<HostMemory>(std::move(made));
  }
  return memory;
}

void Fabric::Died(const std::string& worker) {
  for (auto& [key, way] : edges_) {
    const auto& [session, from, to] = key;
    if (from != worker || !options_.fences) continue;
    way.cut = std::min(way.cut, way.number + static_cast<std::int64_t>(scheduler_.prng().Below(
                                                 static_cast<std::uint64_t>(way.sent - way.number + 1))));
    // A host that is gone without a word: the deadline of operations decides.
    if (scheduler_.OneIn(5)) continue;
    Edge* const lost = &way;
    scheduler_.After(scheduler_.Random(absl::Milliseconds(1), absl::Milliseconds(400)), nullptr,
                     [this, lost, worker] {
                       lost->closed = absl::UnavailableError(absl::StrCat(worker, " is gone"));
                       if (lost->receiver != nullptr) scheduler_.Wake(lost->receiver);
                     });
  }
}

void Fabric::Block(const std::string& from, const std::string& to, MonoTime until) {
  blocked_[{from, to}] = until;
}

}  // namespace lockstep::sim
