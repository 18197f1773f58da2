#include "tests/bench/coordinator/capacity_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep {
namespace {

constexpr double kMebibyte = 1 << 20;

}  // namespace

nlohmann::json CapacityJson(const std::vector<CapacityResult>& results) {
  nlohmann::json report = nlohmann::json::array();
  for (const CapacityResult& result : results) {
    report.push_back({{"workers", result.workers},
                      {"tls", result.tls},
                      {"joins_per_second", result.joins_per_second()},
                      {"epoch_seconds", result.epoch_seconds},
                      {"heartbeats_per_second", result.heartbeats_per_second},
                      {"heartbeat_p99_ms", result.heartbeat_p99_ms},
                      {"policy_fanout_seconds", result.policy_fanout_seconds},
                      {"bytes_per_worker", result.bytes_per_worker()},
                      {"restart_seconds", result.restart_seconds}});
  }
  return report;
}

std::string CapacityText(const std::vector<CapacityResult>& results) {
  std::string text = absl::StrFormat(
      "%7s %3s | %7s %8s %6s | %8s %7s %5s | %8s %9s | %9s %8s | %8s %9s\n", "workers", "tls",
      "joins/s", "epoch s", "cpu s", "beats/s", "p99 ms", "cpu", "policy s", "applied s",
      "B/worker", "peak MiB", "again s", "members s");
  for (const CapacityResult& result : results) {
    absl::StrAppendFormat(
        &text,
        "%7d %3s | %7.0f %8.2f %6.2f | %8.0f %7.1f %4.0f%% | %8.3f %9.2f | %9d %8.0f | %8.2f "
        "%9.2f\n",
        result.workers, result.tls ? "on" : "off", result.joins_per_second(),
        result.epoch_seconds, result.epoch_cpu_seconds, result.heartbeats_per_second,
        result.heartbeat_p99_ms, 100 * result.heartbeats_cpu_share, result.policy_fanout_seconds,
        result.policy_applied_seconds, result.bytes_per_worker(), result.peak_bytes / kMebibyte,
        result.restart_seconds, result.reattended_seconds);
  }
  absl::StrAppend(&text,
                  "cpu: the coordinator's, for the time before it. applied: until it shows that "
                  "all have applied the policy.\nagain: it answers after kill -9; members: all "
                  "take part again. ./lockstep bench coordinator --help says more.\n");
  return text;
}

}  // namespace lockstep
