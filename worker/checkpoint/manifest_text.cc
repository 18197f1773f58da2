#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/json_object.h"
#include "worker/checkpoint/optimizer_json.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// The end of the text: this, the digits, and kEnd.
constexpr absl::string_view kChecksum = ",\n\"checksum\":\"";
constexpr absl::string_view kEnd = "\"}\n";

std::string ChecksumOf(absl::string_view text) {
  return Checksum().Add(std::as_bytes(std::span(text.data(), text.size()))).Finish();
}

ordered_json ToJson(const TensorSpec& tensor) {
  return {{"name", tensor.name},
          {"dtype", std::string(DTypeName(tensor.dtype))},
          {"shape", tensor.shape}};
}

std::optional<DType> TypeOfName(absl::string_view name) {
  if (name == DTypeName(DType::kUnspecified)) return DType::kUnspecified;
  for (std::int64_t i = 1; DTypeFromNumber(i).has_value(); ++i) {
    if (DTypeName(*DTypeFromNumber(i)) == name) return DTypeFromNumber(i);
  }
  return std::nullopt;
}

absl::Status Read(const JsonObject& object, const char* name, DType* dtype) {
  std::string text;
  LOCKSTEP_RETURN_IF_ERROR(object.Read(name, &text));
  const std::optional<DType> found = TypeOfName(text);
  if (!found) {
    return absl::DataLossError(absl::StrCat(object.what(), ".", name, " is ", Quoted(text),
                                            "; expected the name of an element type"));
  }
  *dtype = *found;
  return absl::OkStatus();
}

absl::Status Read(const JsonObject& object, TensorSpec* tensor) {
  LOCKSTEP_RETURN_IF_ERROR(object.Read("name", &tensor->name));
  LOCKSTEP_RETURN_IF_ERROR(Read(object, "dtype", &tensor->dtype));
  LOCKSTEP_ASSIGN_OR_RETURN(const json* shape, object.Array("shape"));
  for (const json& dimension : *shape) {
    if (!ReadInteger(dimension, &tensor->shape.emplace_back())) {
      return absl::DataLossError(
          absl::StrCat(object.what(), ".shape has no integer; expected integers only"));
    }
  }
  return absl::OkStatus();
}

// Calls each(object) for the objects of the array `name`.
template <typename Each>
absl::Status ForEachIn(const JsonObject& parent, const char* name, Each each) {
  LOCKSTEP_ASSIGN_OR_RETURN(const json* array, parent.Array(name));
  std::size_t i = 0;
  for (const json& value : *array) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const JsonObject object,
        JsonObject::Of(value, absl::StrCat(parent.what(), ".", name, "[", i++, "]")));
    LOCKSTEP_RETURN_IF_ERROR(each(object));
  }
  return absl::OkStatus();
}

ordered_json ModelToJson(const Manifest& model) {
  ordered_json parameters = ordered_json::array();
  for (const ParameterSpec& parameter : model.parameters) {
    parameters.emplace_back(ToJson(parameter.tensor))["trainable"] = parameter.trainable;
  }
  ordered_json buffers = ordered_json::array();
  for (const TensorSpec& buffer : model.buffers) buffers.push_back(ToJson(buffer));
  return {{"parameters", std::move(parameters)}, {"buffers", std::move(buffers)}};
}

absl::Status Read(const JsonObject& object, Manifest* model) {
  LOCKSTEP_RETURN_IF_ERROR(ForEachIn(object, "parameters", [&](const JsonObject& read) {
    ParameterSpec& parameter = model->parameters.emplace_back();
    LOCKSTEP_RETURN_IF_ERROR(Read(read, &parameter.tensor));
    return read.Read("trainable", &parameter.trainable);
  }));
  return ForEachIn(object, "buffers", [&](const JsonObject& read) {
    return Read(read, &model->buffers.emplace_back());
  });
}

ordered_json PlanToJson(const ShardPlan& plan) {
  ordered_json blocks = ordered_json::array();
  for (const Block& block : plan.blocks) {
    blocks.push_back({{"dtype", std::string(DTypeName(block.dtype))},
                      {"begin", block.begin},
                      {"end", block.end}});
  }
  ordered_json placements = ordered_json::array();
  for (const Placement& placement : plan.placements) {
    placements.push_back({{"name", placement.name},
                          {"offset", placement.offset},
                          {"elements", placement.elements}});
  }
  ordered_json shards = ordered_json::array();
  for (const Shard& shard : plan.shards) {
    shards.push_back({{"begin", shard.begin}, {"end", shard.end}});
  }
  return {{"flat_elements", plan.flat_elements},
          {"blocks", std::move(blocks)},
          {"placements", std::move(placements)},
          {"shards", std::move(shards)}};
}

absl::Status Read(const JsonObject& object, ShardPlan* plan) {
  LOCKSTEP_RETURN_IF_ERROR(object.Read("flat_elements", &plan->flat_elements));
  LOCKSTEP_RETURN_IF_ERROR(ForEachIn(object, "blocks", [&](const JsonObject& read) {
    Block& block = plan->blocks.emplace_back();
    LOCKSTEP_RETURN_IF_ERROR(Read(read, "dtype", &block.dtype));
    LOCKSTEP_RETURN_IF_ERROR(read.Read("begin", &block.begin));
    return read.Read("end", &block.end);
  }));
  LOCKSTEP_RETURN_IF_ERROR(ForEachIn(object, "placements", [&](const JsonObject& read) {
    Placement& placement = plan->placements.emplace_back();
    LOCKSTEP_RETURN_IF_ERROR(read.Read("name", &placement.name));
    LOCKSTEP_RETURN_IF_ERROR(read.Read("offset", &placement.offset));
    return read.Read("elements", &placement.elements);
  }));
  return ForEachIn(object, "shards", [&](const JsonObject& read) {
    Shard& shard = plan->shards.emplace_back();
    LOCKSTEP_RETURN_IF_ERROR(read.Read("begin", &shard.begin));
    return read.Read("end", &shard.end);
  });
}

ordered_json ToJson(const CheckpointManifest& manifest) {
  ordered_json slots = ordered_json::array();
  for (const CheckpointSlot& slot : manifest.slots) {
    slots.push_back({{"name", slot.name}, {"begin", slot.begin}});
  }
  ordered_json files = ordered_json::array();
  for (const CheckpointFile& file : manifest.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.sum.bytes},
                     {"xxh128", file.sum.checksum}});
  }
  return {{"format", kCheckpointFormat},
          {"job", manifest.id.job},
          {"epoch", manifest.id.epoch},
          {"step", manifest.id.step},
          {"samples", manifest.samples},
          {"policy_revision", manifest.policy_revision},
          {"policy", manifest.policy},
          {"learning_rate", manifest.learning_rate},
          {"optimizer", OptimizerToJson(manifest.optimizer)},
          {"optimizer_steps", manifest.optimizer_steps},
          {"files", std::move(files)},
          {"slots", std::move(slots)},
          {"model", ModelToJson(manifest.model)},
          {"plan", PlanToJson(manifest.plan)}};
}

absl::Status Read(const JsonObject& object, CheckpointManifest* manifest) {
  LOCKSTEP_RETURN_IF_ERROR(object.Read("job", &manifest->id.job));
  LOCKSTEP_RETURN_IF_ERROR(object.Read("epoch", &manifest->id.epoch));
  LOCKSTEP_RETURN_IF_ERROR(object.Read("step", &manifest->id.step));
  LOCKSTEP_RETURN_IF_ERROR(object.Read("samples", &manifest->samples));
  LOCKSTEP_RETURN_IF_ERROR(object.Read("policy_revision", &manifest->policy_revision));
  LOCKSTEP_RETURN_IF_ERROR(object.Read("policy", &manifest->policy));
  LOCKSTEP_RETURN_IF_ERROR(object.Read("learning_rate", &manifest->learning_rate));
  LOCKSTEP_ASSIGN_OR_RETURN(const JsonObject optimizer, object.Object("optimizer"));
  LOCKSTEP_ASSIGN_OR_RETURN(manifest->optimizer, OptimizerFromJson(optimizer));
  LOCKSTEP_RETURN_IF_ERROR(object.Read("optimizer_steps", &manifest->optimizer_steps));
  LOCKSTEP_RETURN_IF_ERROR(ForEachIn(object, "files", [&](const JsonObject& read) {
    CheckpointFile& file = manifest->files.emplace_back();
    LOCKSTEP_RETURN_IF_ERROR(read.Read("name", &file.name));
    LOCKSTEP_RETURN_IF_ERROR(read.Read("bytes", &file.sum.bytes));
    return read.Read("xxh128", &file.sum.checksum);
  }));
  LOCKSTEP_RETURN_IF_ERROR(ForEachIn(object, "slots", [&](const JsonObject& read) {
    CheckpointSlot& slot = manifest->slots.emplace_back();
    LOCKSTEP_RETURN_IF_ERROR(read.Read("name", &slot.name));
    return read.Read("begin", &slot.begin);
  }));
  LOCKSTEP_ASSIGN_OR_RETURN(const JsonObject model, object.Object("model"));
  LOCKSTEP_RETURN_IF_ERROR(Read(model, &manifest->model));
  manifest->model.optimizer = Describe(manifest->optimizer);
  LOCKSTEP_ASSIGN_OR_RETURN(const JsonObject plan, object.Object("plan"));
  return Read(plan, &manifest->plan);
}

absl::Status CheckChecksum(absl::string_view text) {
  const std::size_t tail = kChecksum.size() + Checksum::kDigits + kEnd.size();
  const absl::string_view end = text.substr(text.size() - std::min(text.size(), tail));
  if (end.size() < tail || !absl::StartsWith(end, kChecksum) || !absl::EndsWith(end, kEnd)) {
    return absl::DataLossError("it does not end with its checksum; expected that");
  }
  const absl::string_view found = end.substr(kChecksum.size(), Checksum::kDigits);
  const std::string expected = ChecksumOf(text.substr(0, text.size() - tail));
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("its text has the checksum ", expected, "; expected ",
                                          Quoted(found), ". It was changed since it was written"));
}

}  // namespace

absl::StatusOr<std::string> ManifestToText(const CheckpointManifest& manifest) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(manifest));
  // A line for each member.
  std::string text;
  const ordered_json members = ToJson(manifest);
  for (const auto& [name, value] : members.items()) {
    absl::StrAppend(&text, text.empty() ? "{" : ",\n", "\"", name, "\":", value.dump());
  }
  return absl::StrCat(text, kChecksum, ChecksumOf(text), kEnd);
}

absl::StatusOr<CheckpointManifest> ManifestFromText(absl::string_view text) {
  LOCKSTEP_RETURN_IF_ERROR(CheckChecksum(text));
  LOCKSTEP_ASSIGN_OR_RETURN(const json parsed, ParseJson(text));
  LOCKSTEP_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(parsed, "manifest"));
  std::int64_t format = 0;
  LOCKSTEP_RETURN_IF_ERROR(object.Read("format", &format));
  if (format != kCheckpointFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint has format ", format, "; this version of Lockstep reads ",
        kCheckpointFormat));
  }
  CheckpointManifest manifest;
  LOCKSTEP_RETURN_IF_ERROR(Read(object, &manifest));
  const absl::Status valid = Validate(manifest);
  if (!valid.ok()) return absl::DataLossError(valid.message());
  return manifest;
}

}  // namespace lockstep
