// The squared norm of a long range that comes in parts. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_OPTIM_SQUARED_NORM_H_
#define LOCKSTEP_WORKER_OPTIM_SQUARED_NORM_H_

#include <array>
#include <cstddef>
#include <span>

namespace lockstep {

// Summed in double, in an order that does not depend on how the range is cut. Finite
// exactly if every value is: the square of no float overflows a double.
class SquaredNorm {
 public:
  // The values that follow those before.
  void Add(std::span<const float> values);
  double sum() const;

 private:
  static constexpr std::size_t kLanes = 16;

  // Independent sums, so that one addition need not wait for the one before it:
  // element i is in lane i % kLanes.
  std::array<double, kLanes> lanes_ = {};
  std::size_t next_lane_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_SQUARED_NORM_H_
