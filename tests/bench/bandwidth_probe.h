// The memory streams of a sharded AdamW step without its arithmetic: what a step
// could take if it did nothing but move the same bytes.
//
// Thread-compatible.
#ifndef LOCKSTEP_TESTS_BENCH_BANDWIDTH_PROBE_H_
#define LOCKSTEP_TESTS_BENCH_BANDWIDTH_PROBE_H_

#include <span>

namespace lockstep {

// All spans are of the owned range. Reads every rank's gradients; reads and writes
// parameters and both moments. Adds, so that no compiler can leave it out.
void StreamStep(std::span<const std::span<const float>> gradients, std::span<float> parameters,
                std::span<float> moment1, std::span<float> moment2);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_BANDWIDTH_PROBE_H_
