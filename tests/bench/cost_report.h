// The report of how the cost of a step grows. Pure; thread-compatible.
#ifndef LOCKSTEP_TESTS_BENCH_COST_REPORT_H_
#define LOCKSTEP_TESTS_BENCH_COST_REPORT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/bench_options.h"
#include "tests/bench/report.h"

namespace lockstep {

// {"results": [...], "left_out": [...], ...}: results as MakeReport() has them,
// each with its number of parameters. `left_out`: sentences.
nlohmann::json MakeCostReport(const BenchOptions& options, const std::vector<CaseResult>& results,
                              const std::vector<std::string>& left_out);

// As people read it: a row for each size, two columns for each number of ranks.
std::string CostText(const nlohmann::json& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_COST_REPORT_H_
