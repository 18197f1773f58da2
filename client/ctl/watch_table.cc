#include "client/ctl/watch_table.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/progress.h"
#include "client/ctl/table.h"

namespace lockstep {
namespace {

constexpr int kLinesAbove = 3;  // WatchLine(), an empty one, the titles

std::string RenderRate(std::optional<double> rate) {
  if (!rate) return "-";
  return absl::StrFormat(*rate < 10 ? "%.2f" : "%.0f", *rate);
}

std::vector<const v1::Worker*> ByRank(const v1::WatchJobResponse& state) {
  std::vector<const v1::Worker*> workers;
  for (const v1::Worker& worker : state.workers()) workers.push_back(&worker);
  const auto key = [](const v1::Worker* worker) {
    return std::pair(worker->rank() < 0 ? std::numeric_limits<int>::max() : worker->rank(),
                     worker->name());
  };
  std::sort(workers.begin(), workers.end(),
            [&](const v1::Worker* a, const v1::Worker* b) { return key(a) < key(b); });
  return workers;
}

}  // namespace

std::string RenderWatch(const v1::WatchJobResponse& state, const StepRates& rates, absl::Time now,
                        int max_lines, Color color) {
  constexpr Table::Align kRight = Table::Align::kRight;
  Table table({{.title = "RANK", .align = kRight},
               {.title = "NAME"},
               {.title = "STATE"},
               {.title = "PHASE"},
               {.title = "STEP", .align = kRight},
               {.title = "STEPS/S", .align = kRight},
               {.title = "LOG APPLIED", .align = kRight}});
  const std::vector<const v1::Worker*> workers = ByRank(state);
  std::size_t room = static_cast<std::size_t>(std::max(max_lines - kLinesAbove, 1));
  if (room < workers.size()) --room;
  for (std::size_t i = 0; i < std::min(room, workers.size()); ++i) {
    const v1::Worker& worker = *workers[i];
    const bool is_member = worker.rank() >= 0;
    table.AddRow({is_member ? absl::StrCat(worker.rank()) : "-", worker.name(),
                  {StateName(worker.state()), StyleOf(worker.state())}, worker.phase(),
                  absl::StrCat(worker.step()), RenderRate(rates.Of(worker.name(), now)),
                  is_member ? absl::StrCat(worker.applied_log_number()) : "-"});
  }
  return absl::StrCat(
      OneLine(state.job().spec().name()), "  ", WatchLine(state, color), "\n\n",
      table.ToString(color),
      room < workers.size() ? absl::StrCat("and ", workers.size() - room, " more\n") : "");
}

std::string RewindOver(const std::string& frame) {
  const auto lines = std::count(frame.begin(), frame.end(), '\n');
  return lines == 0 ? "" : absl::StrFormat("\x1b[%dA\r\x1b[J", lines);
}

}  // namespace lockstep
