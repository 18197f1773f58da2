// Seeded random images in MNIST's files, for where its own are not wanted.
#ifndef LOCKSTEP_TESTS_BENCH_RANDOM_DIGITS_H_
#define LOCKSTEP_TESTS_BENCH_RANDOM_DIGITS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace lockstep {

// Writes the two training files into `folder`. An image is its digit's random
// pattern and noise, so that there is something to learn. Equal arguments give equal bytes.
// Errors: Internal: a file cannot be written.
absl::Status WriteRandomDigits(const std::string& folder, std::int64_t images, std::uint64_t seed);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_RANDOM_DIGITS_H_
