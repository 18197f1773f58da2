// Line: one direction of a link that delays frames, loses some, and can be cut.
//
// What happens to the n-th frame depends on the seed and on n alone. Frames never overtake each
// other: jitter is that of a queue. Pure; thread-compatible.
#ifndef LOCKSTEP_TESTS_HOSTS_WIRE_LINE_H_
#define LOCKSTEP_TESTS_HOSTS_WIRE_LINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/base/mono_time.h"
#include "common/base/prng.h"

namespace lockstep {

// Each frame takes `delay` and up to `jitter` more or less; `loss`, from 0 to 1, is the share that
// never arrives.
struct LineQuality {
  absl::Duration delay;
  absl::Duration jitter;
  double loss = 0;
};

class Line {
 public:
  // Of frames under way; one that comes when there are so many is lost.
  static constexpr std::size_t kMostUnderWay = 1000;

  Line(const LineQuality& quality, std::uint64_t seed) : quality_(quality), prng_(seed) {}

  // A frame comes in. Times never go back.
  void Enter(std::string frame, MonoTime now);
  // The next frame that is through by `now`, if there is one.
  std::optional<std::string> Leave(MonoTime now);
  // When the next frame is through; nothing is under way: Infinite().
  MonoTime next() const;

  // Until Heal() all frames are lost; so are those under way.
  void Cut();
  void Heal() { cut_ = false; }

  std::int64_t lost() const { return lost_; }
  std::int64_t passed() const { return passed_; }

 private:
  struct Frame {
    std::string bytes;
    MonoTime through;
  };

  const LineQuality quality_;
  Prng prng_;
  bool cut_ = false;
  std::deque<Frame> under_way_;
  MonoTime last_through_;
  std::int64_t lost_ = 0;
  std::int64_t passed_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_HOSTS_WIRE_LINE_H_
