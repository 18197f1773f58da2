// SplitMix64 (Steele, Lea, Flood 2014): a small seeded generator whose numbers
// are the same on every machine, which the standard distributions are not.
//
// Not for secrets. Thread-compatible.
#ifndef LOCKSTEP_COMMON_BASE_PRNG_H_
#define LOCKSTEP_COMMON_BASE_PRNG_H_

#include <cstdint>

namespace lockstep {

class Prng {
 public:
  constexpr explicit Prng(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Uniform in [0, bound), bound > 0. The bias is below bound / 2^64.
  constexpr std::uint64_t Below(std::uint64_t bound) { return Next() % bound; }

  // Uniform in [low, high], both ends included.
  constexpr std::int64_t Between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(
                     Below(static_cast<std::uint64_t>(high - low) + 1));
  }

  // Uniform in [0, 1).
  constexpr double Unit() {
    return static_cast<double>(Next() >> 11) * 0x1.0p-53;
  }

 private:
  std::uint64_t state_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_PRNG_H_
