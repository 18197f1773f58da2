// The squared norm of a range, which also tells whether all of it is finite.
// Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_OPTIM_SQUARED_NORM_H_
#define LOCKSTEP_WORKER_OPTIM_SQUARED_NORM_H_

#include <span>

namespace lockstep {

// Summed in double, in an order that depends on the size alone. Finite exactly if
// every value is: the square of no float overflows a double.
double SquaredNorm(std::span<const float> values);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_SQUARED_NORM_H_
