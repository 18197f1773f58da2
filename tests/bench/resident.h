// What this process holds in memory, as the kernel counts it.
#ifndef LOCKSTEP_TESTS_BENCH_RESIDENT_H_
#define LOCKSTEP_TESTS_BENCH_RESIDENT_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace lockstep {

struct Resident {
  std::int64_t now_bytes = 0;
  std::int64_t peak_bytes = 0;  // since the start, or the last ForgetPeak()
  // Pages that k processes share count 1/k; -1: the kernel does not say.
  std::int64_t proportional_bytes = -1;
};

Resident MeasureResident();
// The peak counts from now on, where the kernel allows.
void ForgetPeak();

// The number behind "`field`:" in kB as a file of /proc has it, in bytes; -1: none.
std::int64_t FieldBytes(absl::string_view text, absl::string_view field);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_RESIDENT_H_
