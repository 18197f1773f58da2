#include "worker/agent/incarnation.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "absl/time/clock.h"
#include "common/base/mutex.h"

namespace lockstep {
namespace {

// The low bits hold the process id, so that two processes with one worker name
// that start at the same time still differ.
constexpr std::int64_t kPidMask = (std::int64_t{1} << 22) - 1;

}  // namespace

Incarnation NewIncarnation() {
  static Mutex mu;
  static std::int64_t last = 0;
  MutexLock lock(&mu);
  const std::int64_t now = absl::GetCurrentTimeNanos();
  last = std::max(last + 1, (now & ~kPidMask) | (::getpid() & kPidMask));
  return Incarnation(last);
}

}  // namespace lockstep
