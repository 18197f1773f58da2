// RateLimiter: how often each of many may do something: `per_second` in the long run, `burst` at
// once. A pure value: time is an argument. Thread-compatible.
#ifndef LOCKSTEP_SECURITY_RATE_LIMITER_H_
#define LOCKSTEP_SECURITY_RATE_LIMITER_H_

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/mono_time.h"

namespace lockstep {

struct Rate {
  double per_second = 0;
  double burst = 0;  // at least 1
};

// One bucket: full at first, it loses one with each that is admitted.
class RateBucket {
 public:
  RateBucket(const Rate& rate, MonoTime now) : left_(rate.burst), at_(now) {}

  bool Admit(const Rate& rate, MonoTime now) {
    left_ = Left(rate, now);
    at_ = std::max(at_, now);
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }
  // As if it had never been used.
  bool IsFull(const Rate& rate, MonoTime now) const { return Left(rate, now) >= rate.burst; }

 private:
  double Left(const Rate& rate, MonoTime now) const {
    if (now <= at_) return left_;
    return std::min(rate.burst, left_ + rate.per_second * absl::ToDoubleSeconds(now - at_));
  }

  double left_;
  MonoTime at_;
};

class RateLimiter {
 public:
  // Remembers `max_keys` at most.
  RateLimiter(const Rate& rate, std::size_t max_keys) : rate_(rate), max_keys_(max_keys) {}

  // False: too often, or there are more keys in use than it may remember.
  bool Admit(absl::string_view key, MonoTime now) {
    auto found = buckets_.find(key);
    if (found == buckets_.end()) {
      if (buckets_.size() >= max_keys_) ForgetTheFull(now);
      if (buckets_.size() >= max_keys_) return false;
      found = buckets_.emplace(std::string(key), RateBucket(rate_, now)).first;
    }
    return found->second.Admit(rate_, now);
  }

  const Rate& rate() const { return rate_; }
  std::size_t size() const { return buckets_.size(); }

 private:
  void ForgetTheFull(MonoTime now) {
    std::erase_if(buckets_, [&](const auto& entry) { return entry.second.IsFull(rate_, now); });
  }

  const Rate rate_;
  const std::size_t max_keys_;
  std::map<std::string, RateBucket, std::less<>> buckets_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_RATE_LIMITER_H_
