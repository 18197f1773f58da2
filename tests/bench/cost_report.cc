#include "tests/bench/cost_report.h"

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

}  // namespace

Json MakeCostReport(const BenchOptions& options, const std::vector<CaseResult>& results,
                    const std::vector<std::string>& left_out) {
  Json report = {{"bench", "cost"},
                 {"transport", options.transport},
                 {"tiny", options.tiny},
                 {"results", Json::array()},
                 {"left_out", left_out}};
  for (const CaseResult& result : results) report["results"].push_back(ResultOf(result));
  return report;
}

std::string CostText(const Json& report) {
  // Of a case, number of parameters and ranks.
  std::map<std::string, std::map<std::pair<std::int64_t, int>, double>> medians;
  std::set<std::int64_t> sizes;
  std::set<int> worlds;
  for (const Json& result : report.at("results")) {
    const auto elements = result.at("parameters").get<std::int64_t>();
    const auto ranks = result.at("ranks").get<int>();
    sizes.insert(elements);
    worlds.insert(ranks);
    medians[result.at("name")][{elements, ranks}] = result.at("median_ms").get<double>();
  }
  const auto cell = [&](const char* name, std::int64_t elements, int ranks) {
    const auto found = medians[name].find({elements, ranks});
    return found == medians[name].end() ? std::string("-") : absl::StrFormat("%.2f", found->second);
  };
  std::string text = absl::StrCat(
      "AdamW steps over ", report.at("transport").get<std::string>(),
      ", median ms; beside each the bandwidth probe of the same size",
      report.at("tiny").get<bool>() ? "; TINY sizes" : "", "\n\n",
      absl::StrFormat("%12s", "parameters"));
  for (const int ranks : worlds) {
    absl::StrAppendFormat(&text, " %10s %9s", absl::StrCat(ranks, ranks == 1 ? " rank" : " ranks"),
                          "probe");
  }
  text += "\n";
  for (const std::int64_t elements : sizes) {
    absl::StrAppendFormat(&text, "%12d", elements);
    for (const int ranks : worlds) {
      absl::StrAppendFormat(&text, " %10s %9s", cell("step", elements, ranks),
                            cell("bandwidth_probe", elements, ranks));
    }
    text += "\n";
  }
  for (const Json& why : report.at("left_out")) {
    absl::StrAppend(&text, "Left out: ", why.get<std::string>(), "\n");
  }
  return text;
}

}  // namespace lockstep
