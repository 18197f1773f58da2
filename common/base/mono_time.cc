#include "common/base/mono_time.h"

#include <chrono>

namespace lockstep {

MonoTime RealClock::Now() const {
  return MonoTime::FromNanos(
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace lockstep
