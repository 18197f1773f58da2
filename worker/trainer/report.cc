#include "worker/trainer/report.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace lockstep {

std::string ToJson(const TrainingReport& report) {
  using Json = nlohmann::ordered_json;
  Json json = {
      {"rank", report.rank},
      {"worker", report.worker},
      {"world_size", report.world_size},
      {"transport", report.transport},
      {"steps", report.steps},
      {"images", report.images},
      {"seconds", report.seconds},
      {"images_per_second", report.images_per_second()},
      {"evaluations", Json::array()},
      {"losses", Json::array()},
      {"drift", Json::array()},
      {"switches", Json::array()},
      {"epochs", Json::array()},
      {"buffer_digest", report.buffer_digest},
      {"parameter_digest", report.parameter_digest},
      {"optimizer_bytes", report.optimizer_bytes},
      {"syncs", report.sync.syncs},
      {"sync_transfers", report.sync.transfers},
      {"synced_bytes", report.sync.bytes},
      {"skipped_bytes", report.sync.skipped_bytes},
      {"revision", report.revision},
  };
  for (const auto& [step, accuracy, loss] : report.evaluations) {
    json["evaluations"].push_back({{"step", step}, {"accuracy", accuracy}, {"loss", loss}});
  }
  for (const auto& [step, loss] : report.losses) {
    json["losses"].push_back({{"step", step}, {"loss", loss}});
  }
  for (const auto& [step, largest, buffer] : report.drift) {
    json["drift"].push_back({{"step", step}, {"largest", largest}, {"buffer", buffer}});
  }
  for (const auto& [revision, log_number, effective_step] : report.switches) {
    json["switches"].push_back({{"revision", revision},
                                {"log_number", log_number},
                                {"effective_step", effective_step}});
  }
  for (const auto& epoch : report.epochs) {
    Json& entry = json["epochs"].emplace_back(Json{{"epoch", epoch.epoch},
                                                   {"step", epoch.step},
                                                   {"samples", epoch.samples},
                                                   {"rank", epoch.rank},
                                                   {"world_size", epoch.world_size},
                                                   {"parameter_digest", epoch.parameter_digest},
                                                   {"stall_seconds", nullptr}});
    if (epoch.stall_seconds.has_value()) entry["stall_seconds"] = *epoch.stall_seconds;
  }
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
