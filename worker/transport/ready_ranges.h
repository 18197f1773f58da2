// ReadyRanges: which elements of an arena were said to be ready, in whatever order and
// however often. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_READY_RANGES_H_
#define LOCKSTEP_WORKER_TRANSPORT_READY_RANGES_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace lockstep {

class ReadyRanges {
 public:
  void Add(std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    // Takes in all that it touches.
    auto next = ends_.upper_bound(begin);
    if (next != ends_.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
    }
    while (next != ends_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ends_.erase(next);
    }
    ends_.emplace(begin, end);
  }

  bool Covers(std::int64_t begin, std::int64_t end) const {
    if (begin >= end) return true;
    const auto next = ends_.upper_bound(begin);
    return next != ends_.begin() && std::prev(next)->second >= end;
  }

 private:
  std::map<std::int64_t, std::int64_t> ends_;  // by begin; apart from each other
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_READY_RANGES_H_
