#include "tools/demo/run_report.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace lockstep {
namespace {

using nlohmann::json;

// One array with the value of `field` of each report.
json Collect(const std::vector<json>& reports, const char* field) {
  json values = json::array();
  for (const json& report : reports) values.push_back(report.at(field));
  return values;
}

// The value of `field` of each rank's first or last evaluation.
json CollectEvaluations(const std::vector<json>& reports, bool last, const char* field) {
  json values = json::array();
  for (const json& report : reports) {
    const json& evaluations = report.at("evaluations");
    if (evaluations.empty()) continue;
    values.push_back((last ? evaluations.back() : evaluations.front()).at(field));
  }
  return values;
}

// The mean over ranks of the loss at each reported step.
json MeanLoss(const std::vector<json>& reports) {
  json means = json::array();
  const json& first = reports.front().at("losses");
  for (std::size_t i = 0; i < first.size(); ++i) {
    double sum = 0;
    for (const json& report : reports) sum += report.at("losses").at(i).at("loss").get<double>();
    means.push_back({{"step", first[i].at("step")}, {"loss", sum / reports.size()}});
  }
  return means;
}

// For each policy revision that took effect: the step, by rank.
json Switches(const std::vector<json>& reports) {
  json switches = json::array();
  const json& first = reports.front().at("switches");
  for (std::size_t i = 0; i < first.size(); ++i) {
    json steps = json::array();
    for (const json& report : reports) {
      const json& mine = report.at("switches");
      const bool same = i < mine.size() && mine[i].at("revision") == first[i].at("revision");
      steps.push_back(same ? mine[i].at("effective_step") : json(nullptr));
    }
    switches.push_back({{"revision", first[i].at("revision")}, {"effective_step", steps}});
  }
  return switches;
}

double Sum(const json& numbers) {
  double sum = 0;
  for (const json& number : numbers) sum += number.get<double>();
  return sum;
}

bool AllEqual(const json& values) {
  return std::all_of(values.begin(), values.end(),
                     [&](const json& value) { return value == values.front(); });
}

std::int64_t SwitchStep(const json& report) {
  const json& switches = report.at("switches");
  return switches.empty() || switches.front().at("effective_step").front().is_null()
             ? -1
             : switches.front().at("effective_step").front().get<std::int64_t>();
}

// The last drift measured at or before `step`, or after it.
double DriftAt(const json& report, std::int64_t step, bool after) {
  double drift = 0;
  for (const json& point : report.at("buffer_drift")) {
    const bool is_after = point.at("step").get<std::int64_t>() > step;
    if (is_after == after) drift = point.at("largest").get<double>();
  }
  return drift;
}

std::string Accuracies(const json& values) {
  return absl::StrJoin(values, "  ", [](std::string* out, const json& value) {
    absl::StrAppendFormat(out, "%6.2f %%", 100 * value.get<double>());
  });
}

}  // namespace

absl::StatusOr<json> MergeReports(const std::vector<json>& workers) {
  if (workers.empty()) return absl::InvalidArgumentError("no worker wrote a report");
  try {
    std::vector<json> reports = workers;
    std::sort(reports.begin(), reports.end(), [](const json& a, const json& b) {
      return a.at("rank").get<int>() < b.at("rank").get<int>();
    });
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      if (reports[rank].at("rank") != rank || reports[rank].at("world_size") != reports.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "expected one report of each rank below ", reports.size(), ", found rank ",
            reports[rank].at("rank").dump(), " of ", reports[rank].at("world_size").dump()));
      }
    }
    const json& first = reports.front();
    return json{{"world_size", first.at("world_size")},
                {"transport", first.at("transport")},
                {"steps", first.at("steps")},
                {"images_per_second", Sum(Collect(reports, "images_per_second"))},
                {"test_accuracy", CollectEvaluations(reports, true, "accuracy")},
                {"test_accuracy_before", CollectEvaluations(reports, false, "accuracy")},
                {"test_loss", CollectEvaluations(reports, true, "loss")},
                {"test_loss_before", CollectEvaluations(reports, false, "loss")},
                {"switches", Switches(reports)},
                {"buffer_drift", first.at("drift")},
                {"buffer_digest", Collect(reports, "buffer_digest")},
                {"parameter_digest", Collect(reports, "parameter_digest")},
                {"optimizer_bytes", Collect(reports, "optimizer_bytes")},
                {"synced_bytes", Collect(reports, "synced_bytes")},
                {"loss", MeanLoss(reports)}};
  } catch (const json::exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat("a worker's report is not as expected: ", e.what()));
  }
}

std::vector<std::string> UnmetClaims(const json& report, double least_accuracy) {
  std::vector<std::string> unmet;
  const auto claim = [&](bool holds, const std::string& sentence) {
    if (!holds) unmet.push_back(sentence);
  };
  const json& accuracy = report.at("test_accuracy");
  const json& switches = report.at("switches");
  claim(!switches.empty(), "the policy change took effect");
  for (const json& change : switches) {
    claim(AllEqual(change.at("effective_step")) && !change.at("effective_step").front().is_null(),
          absl::StrCat("revision ", change.at("revision").dump(),
                       " took effect at one step on all ranks, not at ",
                       change.at("effective_step").dump()));
  }
  for (std::size_t rank = 0; rank < accuracy.size(); ++rank) {
    claim(accuracy[rank].get<double>() >= least_accuracy,
          absl::StrFormat("rank %d classifies at least %.2f %%, not %.2f %%", rank,
                          100 * least_accuracy, 100 * accuracy[rank].get<double>()));
  }
  claim(AllEqual(accuracy) && AllEqual(report.at("test_loss")),
        "accuracy and loss are equal on all ranks at the end");
  claim(AllEqual(report.at("buffer_digest")), "buffers are bit-equal on all ranks at the end");
  claim(AllEqual(report.at("parameter_digest")),
        "parameters are bit-equal on all ranks at the end");
  if (accuracy.size() > 1) {
    claim(!AllEqual(report.at("test_loss_before")),
          "ranks differ while their buffers are not synchronised");
  }
  return unmet;
}

std::string SummaryTable(const json& report) {
  const std::int64_t step = SwitchStep(report);
  std::string ranks;
  for (std::size_t rank = 0; rank < report.at("test_accuracy").size(); ++rank) {
    absl::StrAppendFormat(&ranks, "%s%8s", rank == 0 ? "" : "  ", absl::StrCat("rank ", rank));
  }
  const auto row = [](absl::string_view when, double drift, const std::string& accuracies) {
    return absl::StrFormat("  %-22s  %14.3g  %s\n", when, drift, accuracies);
  };
  return absl::StrCat(
      absl::StrFormat("  %-22s  %14s  %s\n", "", "buffer drift", ranks),
      row(absl::StrCat("before step ", step), DriftAt(report, step, /*after=*/false),
          Accuracies(report.at("test_accuracy_before"))),
      row(absl::StrCat("at the end, step ", report.at("steps").dump()),
          DriftAt(report, step, /*after=*/true), Accuracies(report.at("test_accuracy"))));
}

}  // namespace lockstep
