// RunReport: what a demo run showed, merged from the reports of its workers.
//
// Pure functions over JSON values; the fields of report.json are described in
// README.md of this folder.
#ifndef LOCKSTEP_TOOLS_DEMO_RUN_REPORT_H_
#define LOCKSTEP_TOOLS_DEMO_RUN_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace lockstep {

// `workers`: the workers' reports, in any order.
// Errors: InvalidArgument: a report lacks a field or ranks are missing or twice.
absl::StatusOr<nlohmann::json> MergeReports(const std::vector<nlohmann::json>& workers);

// What the demo claims and the report does not show, one sentence each; empty:
// all is well. `least_accuracy` in [0, 1], asked of every rank at the end.
std::vector<std::string> UnmetClaims(const nlohmann::json& report, double least_accuracy);

// Drift and accuracy before and after the switch, as a table for a terminal.
std::string SummaryTable(const nlohmann::json& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DEMO_RUN_REPORT_H_
