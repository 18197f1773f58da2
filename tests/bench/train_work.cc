#include "tests/bench/train_work.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

// Later ones drift apart as roundings add up. The second step's loss is the first
// that tells whether the ranks' gradients were averaged.
constexpr std::size_t kComparedSteps = 3;
constexpr double kRelativeTolerance = 0.01;

std::string NameOf(const TrainAccount& account) {
  return absl::StrCat("rank ", account.rank, " of ", account.system);
}

double MeanOf(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

absl::Status CheckFell(const TrainAccount& account) {
  const bool is_finite =
      std::ranges::all_of(account.losses, [](double loss) { return std::isfinite(loss); });
  if (is_finite && account.losses.size() >= 2) {
    const LossChange change = ChangeOf(account.losses);
    if (change.last < change.first) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("the loss of ", NameOf(account), " did not fall: ", change.first,
                     " at first, ", change.last, " at the end; what was measured is no training"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the losses of ", NameOf(account), is_finite ? " are of fewer than two steps"
                                                                : " are not all finite"));
}

absl::Status Differ(const TrainAccount& a, const TrainAccount& b, absl::string_view what,
                    double of_a, double of_b) {
  return absl::FailedPreconditionError(absl::StrCat(
      NameOf(a), " and ", NameOf(b), " did not do the same work: ", what, " ", of_a, " and ",
      of_b));
}

absl::Status CheckSame(const TrainAccount& a, const TrainAccount& b) {
  if (a.parameters != b.parameters) {
    return Differ(a, b, "parameters", static_cast<double>(a.parameters),
                  static_cast<double>(b.parameters));
  }
  if (a.buffers != b.buffers) {
    return Differ(a, b, "buffers", static_cast<double>(a.buffers), static_cast<double>(b.buffers));
  }
  if (a.losses.size() != b.losses.size()) {
    return Differ(a, b, "steps", static_cast<double>(a.losses.size()),
                  static_cast<double>(b.losses.size()));
  }
  if (a.rank != b.rank) return absl::OkStatus();
  for (std::size_t step = 0; step < std::min(kComparedSteps, a.losses.size()); ++step) {
    if (std::abs(a.losses[step] - b.losses[step]) > kRelativeTolerance * std::abs(a.losses[step])) {
      return Differ(a, b, absl::StrCat("loss of step ", step), a.losses[step], b.losses[step]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::int64_t BatchBegin(std::int64_t step, int rank, int ranks, std::int64_t batch,
                        std::int64_t images) {
  return (step * ranks + rank) % (images / batch) * batch;
}

Json ToJson(const TrainAccount& account) {
  return {{"system", account.system},
          {"rank", account.rank},
          {"parameters", account.parameters},
          {"buffers", account.buffers},
          {"losses", account.losses}};
}

absl::StatusOr<TrainAccount> ParseTrainAccount(const Json& json) {
  const auto is_count = [&](const char* field) {
    return json.contains(field) && json[field].is_number_integer();
  };
  if (!json.is_object() || !json.contains("system") || !json["system"].is_string() ||
      !is_count("rank") || !is_count("parameters") || !is_count("buffers") ||
      !json.contains("losses") || !json["losses"].is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a rank gave no account of its training: ", json.dump()));
  }
  TrainAccount account = {.system = json["system"].get<std::string>(),
                          .rank = json["rank"].get<int>(),
                          .parameters = json["parameters"].get<std::int64_t>(),
                          .buffers = json["buffers"].get<std::int64_t>()};
  for (const Json& loss : json["losses"]) {
    // What is no number in JSON was not finite.
    account.losses.push_back(loss.is_number() ? loss.get<double>() : std::nan(""));
  }
  return account;
}

LossChange ChangeOf(std::span<const double> losses) {
  if (losses.empty()) return {};
  const std::size_t some = std::max<std::size_t>(1, losses.size() / 5);
  return {.first = MeanOf(losses.first(some)), .last = MeanOf(losses.last(some))};
}

absl::Status CheckTraining(std::span<const TrainAccount> accounts) {
  for (const TrainAccount& account : accounts) LOCKSTEP_RETURN_IF_ERROR(CheckFell(account));
  for (const TrainAccount& a : accounts) {
    for (const TrainAccount& b : accounts) LOCKSTEP_RETURN_IF_ERROR(CheckSame(a, b));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
