#include "tests/chaos/chaos_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/prng.h"
#include "common/base/status_macros.h"
#include "tests/chaos/chaos_round.h"

namespace lockstep {
namespace {

constexpr absl::Duration kRound = absl::Seconds(45);  // at most
constexpr std::int64_t kUndisturbedSteps = 100;
// Faults cost so much that a round takes about its time.
constexpr double kDisturbedSpeed = 0.6;

class Run {
 public:
  Run(const ChaosOptions& options, const std::atomic<bool>& interrupted, ChaosTotals* totals)
      : options_(options),
        interrupted_(interrupted),
        totals_(*totals),
        prng_(options.seed),
        deck_(&prng_) {}

  absl::Status Of(const std::string& transport, absl::Time end) {
    // Nobody disturbs the first one: it tells how many steps make a round.
    LOCKSTEP_ASSIGN_OR_RETURN(const RoundResult first,
                              Round({.transport = transport,
                                     .steps = kUndisturbedSteps,
                                     .disturbed = false}));
    do {
      const absl::Duration time = std::clamp(end - absl::Now(), absl::Seconds(10), kRound);
      const double steps = kDisturbedSpeed * first.steps_per_second * absl::ToDoubleSeconds(time);
      const RoundOptions options = {
          .transport = transport,
          .steps = std::max<std::int64_t>(kUndisturbedSteps, std::llround(steps)),
          .last_fault = absl::Now() + time};
      LOCKSTEP_RETURN_IF_ERROR(Round(options).status());
    } while (absl::Now() < end);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<RoundResult> Round(RoundOptions options) {
    const int number = ++rounds_begun_;
    options.folder = absl::StrCat(options_.out, "/round-", number);
    std::error_code error;
    std::filesystem::remove_all(options.folder, error);
    std::filesystem::create_directories(options.folder, error);
    if (error) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot make the folder ", options.folder, ": ", error.message()));
    }
    const auto say = [&](const std::string& what) {
      std::cerr << absl::StreamFormat("%6.1f of %.0f s  round %d (%s)  %s\n",
                                      absl::ToDoubleSeconds(absl::Now() - begin_),
                                      60 * options_.minutes, number, options.transport, what);
    };
    say(absl::StrCat(options.steps, " steps", options.disturbed ? "" : ", undisturbed"));
    ChaosRound round(options, &prng_, &deck_, &interrupted_, say);
    const absl::Status status = round.Run();
    const RoundResult& result = round.result();
    for (const auto& [fault, times] : result.faults) totals_.faults[fault] += times;
    totals_.leaked_segments += result.leaked_segments;
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("round ", number, " (", options.transport, "): ",
                                       status.message(), "\nLogs: ", options.folder));
    }
    ++totals_.rounds;
    totals_.steps += options.steps;
    totals_.epochs += result.epochs;
    double longest = 0;
    for (const auto& [fault, stall] : result.longest_stall_seconds) {
      double& most = totals_.longest_stall_seconds[options.transport][fault];
      most = std::max(most, stall);
      longest = std::max(longest, stall);
    }
    say(absl::StrFormat("all workers have the parameters of serial training; %d epochs, at most "
                        "%.2f s without a step",
                        result.epochs, longest));
    return result;
  }

  const ChaosOptions& options_;
  const std::atomic<bool>& interrupted_;
  ChaosTotals& totals_;
  Prng prng_;
  FaultDeck deck_;
  const absl::Time begin_ = absl::Now();
  int rounds_begun_ = 0;
};

}  // namespace

absl::Status ChaosOptions::Validate() const {
  if (!(minutes > 0 && minutes <= 7 * 24 * 60)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--minutes must be above 0 and at most a week, not ", minutes));
  }
  if (out.empty()) return absl::InvalidArgumentError("--out must name a folder");
  return absl::OkStatus();
}

nlohmann::json ToJson(const ChaosOptions& options, const ChaosTotals& totals) {
  nlohmann::json faults = nlohmann::json::object();
  for (const Fault fault : kFaults) {
    const auto found = totals.faults.find(fault);
    faults[std::string(Describe(fault))] = found == totals.faults.end() ? 0 : found->second;
  }
  nlohmann::json stalls = nlohmann::json::object();
  for (const auto& [transport, by_fault] : totals.longest_stall_seconds) {
    nlohmann::json& own = stalls[transport] = nlohmann::json::object();
    for (const auto& [fault, seconds] : by_fault) own[std::string(Describe(fault))] = seconds;
  }
  return {{"seed", options.seed},
          {"minutes", options.minutes},
          {"rounds", totals.rounds},
          {"steps", totals.steps},
          {"faults", faults},
          {"epochs", totals.epochs},
          {"longest_stall_seconds", stalls},
          {"leaked_segments", totals.leaked_segments}};
}

absl::Status RunChaos(const ChaosOptions& options, const std::atomic<bool>& interrupted,
                      ChaosTotals* totals) {
  LOCKSTEP_RETURN_IF_ERROR(options.Validate());
  const absl::Time begin = absl::Now();
  const absl::Duration time = absl::Minutes(options.minutes);
  Run run(options, interrupted, totals);
  LOCKSTEP_RETURN_IF_ERROR(run.Of("shm", begin + time / 2));
  return run.Of("gloo", begin + time);
}

}  // namespace lockstep
