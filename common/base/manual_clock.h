// A clock that tests move by hand. Thread-compatible.
#ifndef LOCKSTEP_COMMON_BASE_MANUAL_CLOCK_H_
#define LOCKSTEP_COMMON_BASE_MANUAL_CLOCK_H_

#include "common/base/mono_time.h"

namespace lockstep {

class ManualClock final : public Clock {
 public:
  MonoTime Now() const override { return now_; }
  absl::Time WallNow() const override {
    return absl::UnixEpoch() + absl::Nanoseconds(now_.nanos());
  }
  void Advance(absl::Duration by) { now_ = now_ + by; }

 private:
  MonoTime now_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_MANUAL_CLOCK_H_
