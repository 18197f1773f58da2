// From repetitions to a report. Pure; thread-compatible.
#ifndef LOCKSTEP_TESTS_BENCH_REPORT_H_
#define LOCKSTEP_TESTS_BENCH_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/bench_options.h"
#include "tests/bench/train_work.h"

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
  int ranks = 0;
  std::int64_t bytes = 0;
  std::int64_t parameters = 0;  // elements of those that are stepped; 0: none are
  std::int64_t images = 0;      // that all ranks trained on in the time measured
  std::vector<Measured> repetitions;
};

// As an element of "results": {"name", "ranks", "median_ms", ...}.
nlohmann::json ResultOf(const CaseResult& result);

// What ranks told at the end of benches; empty of benches that did not run.
struct RankAccounts {
  std::vector<nlohmann::json> memory;  // of each rank that took steps
  std::vector<TrainAccount> training;  // of each rank of each system
  std::string data;                    // trained on, in words
};

// {"results": [...], "ratios": {...}, ...}
nlohmann::json MakeReport(const BenchOptions& options, const std::vector<CaseResult>& results,
                          const RankAccounts& accounts);

// As people read it.
std::string ReportText(const nlohmann::json& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_REPORT_H_
