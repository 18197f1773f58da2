#include "tests/bench/report.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/statistics.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

struct Ratio {
  const char* name;
  const char* numerator;
  const char* denominator;
  const char* meaning;
};

// Of a peer: its time over ours, so that 2 is "half the time".
constexpr Ratio kRatios[] = {
    {"zero", "zero", "step", "DDP all-reduce + ZeroRedundancyOptimizer(AdamW) / step"},
    {"zero_fused", "zero_fused", "step", "the same with fused=True / step"},
    {"fairscale", "fairscale", "step", "ShardedDDP reduce + OSS(AdamW) / step"},
    {"bandwidth_probe", "bandwidth_probe", "step", "the step's memory streams alone / step"},
    {"ddp_buffers_hot", "ddp_buffers_hot", "buffers_hot", "DDP's buffer sync / ours, hot"},
    {"ddp_buffers_cold", "ddp_buffers_cold", "buffers_cold", "DDP's buffer sync / ours, cold"},
    {"gloo_broadcast", "gloo_broadcast", "broadcast", "dist.broadcast / ours"},
    {"train_ddp", "train_ddp", "train", "the loop by DDP + fused ZeRO / ours"},
    {"train_ddp_tuned", "train_ddp_tuned", "train", "the same with views of buckets / ours"},
};
constexpr char kAgreeShare[] = "agree_share";
constexpr double kUsualStepMs = 20;

std::vector<double> TimesOf(const CaseResult& result) {
  std::vector<double> times;
  for (const Measured& measured : result.repetitions) times.push_back(measured.ms);
  return times;
}

Json PartsOf(const CaseResult& result) {
  std::map<std::string, std::vector<double>> parts;
  for (const Measured& measured : result.repetitions) {
    for (const auto& [part, ms] : measured.parts_ms) parts[part].push_back(ms);
  }
  Json json = Json::object();
  for (const auto& [part, times] : parts) json[part] = Summarize(times).median;
  return json;
}

const CaseResult* Find(const std::vector<CaseResult>& results, const std::string& name) {
  const auto found = std::ranges::find(results, name, &CaseResult::name);
  return found == results.end() || found->repetitions.empty() ? nullptr : &*found;
}

// In MiB, as a cell of a table.
std::string Mebibytes(const Json& bytes) {
  const auto value = bytes.get<double>();
  return value < 0 ? "?" : absl::StrFormat("%.0f", value / (1 << 20));
}

std::string MemoryText(const Json& memory) {
  std::string text =
      "\nMemory of the ranks that took the steps, MiB. Bound: libraries (measured before joining) + "
      "parameters + own gradients + own state.\nA peak counts every page that is mapped: also those of "
      "the peers' gradients that an owner reads.\n\n";
  absl::StrAppendFormat(&text, "%-6s %7s %8s %11s %10s %12s %14s\n", "rank", "peak", "bound",
                        "peers' part", "peak-peers", "proportional", "while joining");
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    const Json& held = memory[rank];
    const auto peers = held.at("mapped_peer_gradient_bytes").get<std::int64_t>();
    absl::StrAppendFormat(&text, "%-6d %7s %8s %11s %10s %12s %14s\n", rank,
                          Mebibytes(held.at("peak_bytes")), Mebibytes(held.at("bound_bytes")),
                          Mebibytes(peers),
                          Mebibytes(held.at("peak_bytes").get<std::int64_t>() - peers),
                          Mebibytes(held.at("proportional_bytes")),
                          Mebibytes(held.at("peak_while_joining_bytes")));
  }
  absl::StrAppend(&text, "\nSent over the network by each rank in the last step, MiB:");
  for (const Json& held : memory) {
    absl::StrAppend(&text, " ", Mebibytes(held.at("sent_bytes_per_step")));
  }
  absl::StrAppend(&text, "\n");
  return text;
}

std::string TrainingText(const Json& report) {
  std::string text = absl::StrCat("\nTraining on ", report.at("data").get<std::string>(),
                                  "; losses are means of the first and of the last fifth of the "
                                  "steps.\n\n");
  absl::StrAppendFormat(&text, "%-18s %11s %8s %6s %11s %10s\n", "rank", "parameters", "buffers",
                        "steps", "loss before", "loss after");
  for (const Json& rank : report.at("training")) {
    absl::StrAppendFormat(
        &text, "%-18s %11d %8d %6d %11.4f %10.4f\n",
        absl::StrCat(rank.at("system").get<std::string>(), " ", rank.at("rank").get<int>()),
        rank.at("parameters").get<std::int64_t>(), rank.at("buffers").get<std::int64_t>(),
        rank.at("steps").get<std::int64_t>(), rank.at("first_loss").get<double>(),
        rank.at("last_loss").get<double>());
  }
  for (const Json& result : report.at("results")) {
    if (!result.contains("images_per_second")) continue;
    absl::StrAppendFormat(&text, "%s: %.1f images per second\n",
                          result.at("name").get<std::string>(),
                          result.at("images_per_second").get<double>());
  }
  return text;
}

Json Told(const TrainAccount& account) {
  const LossChange change = ChangeOf(account.losses);
  return {{"system", account.system},         {"rank", account.rank},
          {"parameters", account.parameters}, {"buffers", account.buffers},
          {"steps", account.losses.size()},   {"first_loss", change.first},
          {"last_loss", change.last}};
}

}  // namespace

Json ResultOf(const CaseResult& result) {
  const Summary summary = Summarize(TimesOf(result));
  Json json = {{"name", result.name},         {"ranks", result.ranks},
               {"median_ms", summary.median}, {"best_ms", summary.best},
               {"p99_ms", summary.p99},       {"bytes", result.bytes},
               {"repetitions", result.repetitions.size()},
               {"parts_median_ms", PartsOf(result)}};
  if (result.parameters > 0) json["parameters"] = result.parameters;
  if (result.images > 0 && summary.median > 0) {
    json["images_per_second"] = static_cast<double>(result.images) / (summary.median / 1000);
  }
  return json;
}

Json MakeReport(const BenchOptions& options, const std::vector<CaseResult>& results,
                const RankAccounts& accounts) {
  Json report = {{"ranks", options.ranks},
                 {"transport", options.transport},
                 {"tiny", options.tiny},
                 {"results", Json::array()},
                 {"ratios", Json::object()},
                 {"ratios_of_best", Json::object()},
                 {"ratio_quartiles", Json::object()},
                 {"memory", accounts.memory}};
  for (const CaseResult& result : results) {
    report["results"].push_back(ResultOf(result));
  }
  if (!accounts.training.empty()) {
    report["data"] = accounts.data;
    for (const TrainAccount& account : accounts.training) {
      report["training"].push_back(Told(account));
    }
  }
  for (const Ratio& ratio : kRatios) {
    const CaseResult* numerator = Find(results, ratio.numerator);
    const CaseResult* denominator = Find(results, ratio.denominator);
    if (numerator == nullptr || denominator == nullptr) continue;
    const std::vector<double> over = TimesOf(*numerator);
    const std::vector<double> under = TimesOf(*denominator);
    report["ratios"][ratio.name] = Summarize(over).median / Summarize(under).median;
    report["ratios_of_best"][ratio.name] = Summarize(over).best / Summarize(under).best;
    const std::vector<double> paired = PairedRatios(over, under);
    report["ratio_quartiles"][ratio.name] = {Quantile(paired, 0.25), Quantile(paired, 0.75)};
  }
  if (const CaseResult* agree = Find(results, "agree")) {
    report["ratios"][kAgreeShare] = Summarize(TimesOf(*agree)).median / kUsualStepMs;
  }
  return report;
}

std::string ReportText(const Json& report) {
  std::string text = absl::StrFormat("%d ranks, %s%s\n\n", report.at("ranks").get<int>(),
                                     report.at("transport").get<std::string>(),
                                     report.at("tiny").get<bool>() ? ", TINY sizes" : "");
  absl::StrAppendFormat(&text, "%-24s %10s %10s %10s %12s\n", "case", "best ms", "median ms",
                        "p99 ms", "bytes");
  for (const Json& result : report.at("results")) {
    absl::StrAppendFormat(&text, "%-24s %10.4f %10.4f %10.4f %12d\n",
                          result.at("name").get<std::string>(), result.at("best_ms").get<double>(),
                          result.at("median_ms").get<double>(), result.at("p99_ms").get<double>(),
                          result.at("bytes").get<std::int64_t>());
    for (const auto& [part, ms] : result.at("parts_median_ms").items()) {
      absl::StrAppendFormat(&text, "  %-22s %10s %10.4f\n", part, "", ms.get<double>());
    }
  }
  const Json& ratios = report.at("ratios");
  if (!ratios.empty()) {
    absl::StrAppendFormat(&text, "\n%-18s %8s %8s %17s\n", "ratio", "medians", "bests",
                          "paired quartiles");
  }
  for (const Ratio& ratio : kRatios) {
    if (!ratios.contains(ratio.name)) continue;
    const Json& quartiles = report.at("ratio_quartiles").at(ratio.name);
    absl::StrAppendFormat(&text, "%-18s %8.3f %8.3f %8.3f %8.3f   %s\n", ratio.name,
                          ratios.at(ratio.name).get<double>(),
                          report.at("ratios_of_best").at(ratio.name).get<double>(), quartiles[0].get<double>(),
                          quartiles[1].get<double>(), ratio.meaning);
  }
  if (ratios.contains(kAgreeShare)) {
    absl::StrAppendFormat(&text, "%-18s %8.5f %26s   agreement / a step of %.0f ms\n", kAgreeShare,
                          ratios.at(kAgreeShare).get<double>(), "", kUsualStepMs);
  }
  if (!report.at("memory").empty()) text += MemoryText(report.at("memory"));
  if (report.contains("training")) text += TrainingText(report);
  return text;
}

}  // namespace lockstep
