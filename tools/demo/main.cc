// ./lockstep demo: trains on MNIST with processes of this machine and changes the
// sync policy of the running job.
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "tools/demo/demo_run.h"
#include "tools/demo/report_page.h"
#include "tools/demo/run_report.h"
#include "tools/local_cluster/local_cluster.h"
#include "tools/process/interrupt.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kInterrupted = 130;

absl::StatusOr<std::string> ReadRunfile(absl::string_view name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string path, FindRunfile(name));
  return ReadFile(path);
}

absl::Status WriteReports(const std::string& out, const nlohmann::json& report) {
  LOCKSTEP_RETURN_IF_ERROR(WriteFile(out + "/report.json", report.dump(2) + "\n"));
  PageParts parts;
  LOCKSTEP_ASSIGN_OR_RETURN(parts.page, ReadRunfile("lockstep/tools/demo/report_page.html"));
  LOCKSTEP_ASSIGN_OR_RETURN(parts.chart_script,
                            ReadRunfile("uplot/package/dist/uPlot.iife.min.js"));
  LOCKSTEP_ASSIGN_OR_RETURN(parts.chart_style, ReadRunfile("uplot/package/dist/uPlot.min.css"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string page, RenderReportPage(parts, report));
  return WriteFile(out + "/report.html", page);
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Trains a BatchNorm network on MNIST with one coordinator and several workers on this\n"
      "machine, and changes the sync policy half-way: buffers drift apart, then are kept equal.",
      "./lockstep demo");
  DemoOptions options;
  double least_accuracy = 0.98;
  bool as_json = false;
  app.add_option("--out", options.out, "Folder for reports and logs")->capture_default_str();
  app.add_option("--workers", options.workers, "Number of worker processes")->capture_default_str();
  app.add_option("--transport", options.transport, "Data plane: shm or gloo")
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps to train; 0: one pass over the images")
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Images per worker and step")->capture_default_str();
  app.add_option("--least-accuracy", least_accuracy,
                 "Test accuracy that every rank must reach, from 0 to 1")
      ->capture_default_str();
  app.add_flag("--json", as_json, "Print report.json instead of the table");
  app.footer(
      "Exit codes: 0 all that the demo claims was seen; 1 not, or a failure; 2 usage; 130 "
      "interrupted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  if (const absl::Status valid = options.Validate(); !valid.ok()) {
    std::cerr << "demo: " << valid.message() << "\n";
    return kUsage;
  }

  const absl::StatusOr<nlohmann::json> report = RunDemo(options, CatchInterrupts());
  if (absl::IsCancelled(report.status())) {
    std::cerr << "demo: interrupted; everything it started has ended\n";
    return kInterrupted;
  }
  absl::Status status = report.status();
  if (status.ok()) status = WriteReports(options.out, *report);
  if (!status.ok()) {
    std::cerr << "demo: " << status.message() << "\n";
    return kFailed;
  }
  if (as_json) {
    std::cout << report->dump(2) << "\n";
  } else {
    std::cout << "\nBuffer drift (largest difference between ranks) and test accuracy:\n\n"
              << SummaryTable(*report) << "\nReports: " << options.out << "/report.json, "
              << options.out << "/report.html\n";
  }
  const std::vector<std::string> unmet = UnmetClaims(*report, least_accuracy);
  for (const std::string& claim : unmet) std::cerr << "demo: not seen: " << claim << "\n";
  return unmet.empty() ? 0 : kFailed;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
