#include "tests/chaos/epoch_history.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

std::string Describe(const EpochHistory::Epoch& epoch) {
  return absl::StrCat("behind step ", epoch.step, " and ", epoch.samples, " samples, ",
                      epoch.world_size, " ranks, parameters ", epoch.digest, " (", epoch.reporter,
                      ")");
}

absl::Status Compare(const std::string& what, const EpochHistory::Epoch& epoch,
                     const SerialTraining& serial) {
  const std::string digest = serial.ParameterDigest();
  if (serial.samples() == epoch.samples && digest == epoch.digest) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " is ", Describe(epoch), "; taken serially it is ",
                                          serial.samples(), " samples, parameters ", digest));
}

}  // namespace

absl::Status EpochHistory::Add(const std::string& worker, const nlohmann::json& report) {
  if (!report.is_object() || !report.contains("epochs")) {
    return absl::InternalError(absl::StrCat(worker, " left no report that can be read"));
  }
  bool first = true;
  for (const nlohmann::json& entry : report.at("epochs")) {
    const Epoch epoch = {.step = entry.at("step"),
                         .samples = entry.at("samples"),
                         .world_size = entry.at("world_size"),
                         .digest = entry.at("parameter_digest"),
                         .reporter = worker};
    const std::int64_t number = entry.at("epoch");
    const auto [known, added] = epochs_.emplace(number, epoch);
    Epoch& other = known->second;
    if (!added && (other.step != epoch.step || other.samples != epoch.samples ||
                   other.world_size != epoch.world_size || other.digest != epoch.digest)) {
      return absl::InternalError(absl::StrCat("workers saw epoch ", number,
                                              " begin otherwise: ", Describe(other), "; ",
                                              Describe(epoch)));
    }
    if (!first && entry.at("stall_seconds").is_number()) {
      const double stall = entry.at("stall_seconds");
      other.stall_seconds = std::min(stall, other.stall_seconds.value_or(stall));
    }
    first = false;
  }
  return absl::OkStatus();
}

double EpochHistory::longest_stall_seconds() const {
  return epochs_.empty() ? 0 : longest_stall_seconds(0, epochs_.rbegin()->first);
}

double EpochHistory::longest_stall_seconds(std::int64_t after, std::int64_t last) const {
  double longest = 0;
  for (auto it = epochs_.upper_bound(after); it != epochs_.end() && it->first <= last; ++it) {
    longest = std::max(longest, it->second.stall_seconds.value_or(0));
  }
  return longest;
}

absl::Status EpochHistory::Replay(std::int64_t steps, const std::string& digest,
                                  SerialTraining& serial) const {
  if (epochs_.empty() || epochs_.begin()->second.step != 0) {
    return absl::InternalError("no report tells how the job began");
  }
  int world_size = 0;
  for (const auto& [number, epoch] : epochs_) {
    while (serial.step() < epoch.step) LOCKSTEP_RETURN_IF_ERROR(serial.Step(world_size));
    if (serial.step() > epoch.step) {
      return absl::InternalError(absl::StrCat("epoch ", number, " took back committed steps: ",
                                              "it is ", Describe(epoch), ", and step ",
                                              serial.step(), " had been committed"));
    }
    LOCKSTEP_RETURN_IF_ERROR(Compare(absl::StrCat("the begin of epoch ", number), epoch, serial));
    world_size = epoch.world_size;
  }
  while (serial.step() < steps) LOCKSTEP_RETURN_IF_ERROR(serial.Step(world_size));
  if (serial.ParameterDigest() == digest) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("behind step ", steps, " parameters are ", digest,
                                          "; taken serially they are ", serial.ParameterDigest()));
}

}  // namespace lockstep
