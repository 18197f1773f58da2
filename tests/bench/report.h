// From repetitions to a report. Pure; thread-compatible.
#ifndef LOCKSTEP_TESTS_BENCH_REPORT_H_
#define LOCKSTEP_TESTS_BENCH_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/bench_options.h"

namespace lockstep {

// One repetition.
struct Measured {
  double ms = 0;
  std::map<std::string, double> parts_ms;
};

// All counted repetitions of one case, in order: the i-th of cases of one bench
// ran side by side.
struct CaseResult {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<Measured> repetitions;
};

// {"results": [...], "ratios": {...}, ...}; `memory` is that of each rank, or none.
nlohmann::json MakeReport(const BenchOptions& options, const std::vector<CaseResult>& results,
                          const std::vector<nlohmann::json>& memory);

// As people read it.
std::string ReportText(const nlohmann::json& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_REPORT_H_
