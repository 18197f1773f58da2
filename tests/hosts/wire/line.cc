#include "tests/hosts/wire/line.h"

#include <algorithm>
#include <utility>

namespace lockstep {

void Line::Enter(std::string frame, MonoTime now) {
  // Drawn in any case: a cut changes nothing for the frames behind it.
  const bool is_lost = prng_.Unit() < quality_.loss;
  const absl::Duration delay =
      std::max(quality_.delay + quality_.jitter * (2 * prng_.Unit() - 1), absl::ZeroDuration());
  if (cut_ || is_lost || under_way_.size() == kMostUnderWay) {
    ++lost_;
    return;
  }
  last_through_ = std::max(last_through_, now + delay);
  under_way_.push_back({std::move(frame), last_through_});
}

std::optional<std::string> Line::Leave(MonoTime now) {
  if (under_way_.empty() || next() > now) return std::nullopt;
  std::string frame = std::move(under_way_.front().bytes);
  under_way_.pop_front();
  ++passed_;
  return frame;
}

MonoTime Line::next() const {
  return under_way_.empty() ? MonoTime::Infinite() : under_way_.front().through;
}

void Line::Cut() {
  cut_ = true;
  lost_ += static_cast<std::int64_t>(under_way_.size());
  under_way_.clear();
}

}  // namespace lockstep
