#include "tools/demo/report_page.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace lockstep {

absl::StatusOr<std::string> RenderReportPage(const PageParts& parts,
                                             const nlohmann::json& report) {
  // "</script>" inside a string would end the element that holds the data.
  const std::string data = absl::StrReplaceAll(report.dump(), {{"</", "<\\/"}});
  const std::vector<std::pair<std::string, std::string>> values = {
      {"/*CHART_STYLE*/", parts.chart_style},
      {"/*CHART_SCRIPT*/", parts.chart_script},
      {"/*REPORT*/null", data},
  };
  std::string page = parts.page;
  for (const auto& [placeholder, value] : values) {
    const std::size_t at = page.find(placeholder);
    if (at == std::string::npos) {
      return absl::InternalError(absl::StrCat("the report page has no ", placeholder));
    }
    page.replace(at, placeholder.size(), value);
  }
  return page;
}

}  // namespace lockstep
