// Monotonic time, and the clock that reads it.
//
// Pure code takes a MonoTime as an argument; only shells own a Clock. Wall time
// is for people only and never decides anything.
#ifndef LOCKSTEP_COMMON_BASE_MONO_TIME_H_
#define LOCKSTEP_COMMON_BASE_MONO_TIME_H_

#include <compare>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lockstep {

// A point in time since an arbitrary start; no conversion to wall time.
class MonoTime {
 public:
  constexpr MonoTime() = default;
  static constexpr MonoTime FromNanos(std::int64_t nanos) {
    MonoTime time;
    time.nanos_ = nanos;
    return time;
  }
  static constexpr MonoTime Infinite() { return FromNanos(INT64_MAX); }

  constexpr std::int64_t nanos() const { return nanos_; }

  friend constexpr auto operator<=>(MonoTime, MonoTime) = default;
  friend absl::Duration operator-(MonoTime a, MonoTime b) {
    return absl::Nanoseconds(a.nanos_ - b.nanos_);
  }
  // Saturates: adding an infinite duration gives Infinite().
  friend MonoTime operator+(MonoTime a, absl::Duration d) {
    const absl::Duration sum = absl::Nanoseconds(a.nanos_) + d;
    return FromNanos(absl::ToInt64Nanoseconds(sum));
  }

 private:
  std::int64_t nanos_ = 0;
};

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonoTime Now() const = 0;
  // For people: create times in histories. Never compare it with Now().
  virtual absl::Time WallNow() const = 0;
};

class RealClock final : public Clock {
 public:
  MonoTime Now() const override;
  absl::Time WallNow() const override { return absl::Now(); }
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_MONO_TIME_H_
