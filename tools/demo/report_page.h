// The demo's report as one self-contained page: charts without a network.
#ifndef LOCKSTEP_TOOLS_DEMO_REPORT_PAGE_H_
#define LOCKSTEP_TOOLS_DEMO_REPORT_PAGE_H_

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace lockstep {

struct PageParts {
  std::string page;          // report_page.html, with its placeholders
  std::string chart_script;  // uPlot's script
  std::string chart_style;   // uPlot's style sheet
};

// Errors: Internal: the page lacks a placeholder.
absl::StatusOr<std::string> RenderReportPage(const PageParts& parts, const nlohmann::json& report);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DEMO_REPORT_PAGE_H_
