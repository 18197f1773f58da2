#include "worker/checkpoint/optimizer_json.h"

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Calls each(name, setting) for all settings but the groups.
template <typename Config, typename Each>
void ForEachSetting(Config& config, Each each) {
  using Plain = std::remove_const_t<Config>;
  each("lr", config.lr);
  if constexpr (std::is_same_v<Plain, Sgd>) {
    each("momentum", config.momentum);
    each("dampening", config.dampening);
    each("nesterov", config.nesterov);
  } else if constexpr (std::is_same_v<Plain, Adagrad>) {
    each("lr_decay", config.lr_decay);
    each("initial_accumulator_value", config.initial_accumulator_value);
    each("eps", config.eps);
  } else {
    each("beta1", config.beta1);
    each("beta2", config.beta2);
    each("eps", config.eps);
  }
  each("weight_decay", config.weight_decay);
}

template <typename Config>
absl::StatusOr<OptimizerConfig> Read(const JsonObject& object) {
  Config config;
  absl::Status status;
  ForEachSetting(config, [&](const char* name, auto& setting) {
    if (status.ok()) status = object.Read(name, &setting);
  });
  LOCKSTEP_RETURN_IF_ERROR(status);
  LOCKSTEP_ASSIGN_OR_RETURN(const json* groups, object.Array("groups"));
  for (const json& value : *groups) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const JsonObject read,
        JsonObject::Of(value, absl::StrCat(object.what(), ".groups[", config.groups.size(), "]")));
    ParameterGroup group;
    LOCKSTEP_RETURN_IF_ERROR(read.Read("pattern", &group.pattern));
    LOCKSTEP_RETURN_IF_ERROR(read.Read("lr_scale", &group.lr_scale));
    if (read.Has("weight_decay")) {
      LOCKSTEP_RETURN_IF_ERROR(read.Read("weight_decay", &group.weight_decay.emplace()));
    }
    config.groups.push_back(std::move(group));
  }
  return config;
}

}  // namespace

const char* OptimizerName(const OptimizerConfig& config) {
  constexpr const char* kNames[] = {"SGD", "Adam", "AdamW", "Adagrad"};
  static_assert(std::variant_size_v<OptimizerConfig> == std::size(kNames));
  return kNames[config.index()];
}

ordered_json OptimizerToJson(const OptimizerConfig& config) {
  ordered_json written;
  written["name"] = OptimizerName(config);
  std::visit(
      [&](const auto& settings) {
        ForEachSetting(settings, [&](const char* name, const auto& setting) {
          written[name] = setting;
        });
      },
      config);
  ordered_json groups = ordered_json::array();
  for (const ParameterGroup& group : GroupsOf(config)) {
    ordered_json& last = groups.emplace_back(
        ordered_json{{"pattern", group.pattern}, {"lr_scale", group.lr_scale}});
    if (group.weight_decay) last["weight_decay"] = *group.weight_decay;
  }
  written["groups"] = std::move(groups);
  return written;
}

absl::StatusOr<OptimizerConfig> OptimizerFromJson(const JsonObject& object) {
  std::string name;
  LOCKSTEP_RETURN_IF_ERROR(object.Read("name", &name));
  if (name == "SGD") return Read<Sgd>(object);
  if (name == "Adam") return Read<Adam>(object);
  if (name == "AdamW") return Read<AdamW>(object);
  if (name == "Adagrad") return Read<Adagrad>(object);
  return absl::DataLossError(absl::StrCat(object.what(), ".name is ", Quoted(name),
                                          "; expected SGD, Adam, AdamW or Adagrad"));
}

}  // namespace lockstep
