#include "worker/checkpoint/checkpoint_manifest.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

absl::Status Refuse(absl::string_view what, absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", found, "; expected ", expected));
}

absl::Status CheckCount(absl::string_view what, std::int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return Refuse(what, absl::StrCat(value), "0 or more");
}

absl::Status CheckId(const CheckpointId& id) {
  if (id.job.empty() || id.job.size() > kMaxJobBytes || !IsPrintable(id.job)) {
    return Refuse("the job", Quoted(id.job),
                  absl::StrCat("printable UTF-8 of 1 to ", kMaxJobBytes, " bytes"));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckCount("the epoch", id.epoch));
  return CheckCount("the step", id.step);
}

// That the flat space holds the model's trainable parameters, all and no others.
absl::Status CheckPlacements(const Manifest& model, const ShardPlan& plan) {
  std::map<absl::string_view, const TensorSpec*> trainable;
  for (const ParameterSpec& parameter : model.parameters) {
    if (parameter.trainable) trainable.emplace(parameter.tensor.name, &parameter.tensor);
  }
  for (const Placement& placement : plan.placements) {
    const std::string what = absl::StrCat("the plan's parameter ", Quoted(placement.name));
    const auto at = trainable.find(placement.name);
    if (at == trainable.end()) return Refuse(what, "placed", "a trainable one, placed once");
    const TensorSpec& tensor = *at->second;
    const std::string found = absl::StrCat("placed with ", placement.elements, " elements");
    if (placement.elements != tensor.elements()) return Refuse(what, found, tensor.ToString());
    const std::size_t block = BlockAt(plan, placement.offset);
    if (placement.elements > 0 && plan.blocks[block].dtype != tensor.dtype) {
      return Refuse(what, absl::StrCat("in the block of ", DTypeName(plan.blocks[block].dtype)),
                    tensor.ToString());
    }
    trainable.erase(at);
  }
  if (trainable.empty()) return absl::OkStatus();
  return Refuse(absl::StrCat("the trainable parameter ", Quoted(trainable.begin()->first)),
                "not in the plan", "a place for it");
}

absl::Status CheckSlots(const std::vector<CheckpointSlot>& slots, const ShardPlan& plan) {
  if (slots.size() > kMaxSlots) {
    return Refuse("the number of state slots", absl::StrCat(slots.size()),
                  absl::StrCat(kMaxSlots, " at most"));
  }
  std::set<absl::string_view> names;
  for (const CheckpointSlot& slot : slots) {
    if (slot.name.empty() || slot.name.size() > kMaxNameBytes || !IsPrintable(slot.name) ||
        !names.insert(slot.name).second) {
      return Refuse("a state slot's name", Quoted(slot.name), "a printable one, once");
    }
    if (slot.begin < 0 || slot.begin > plan.flat_elements) {
      return Refuse(absl::StrCat("the begin of state slot ", Quoted(slot.name)),
                    absl::StrCat(slot.begin), absl::StrCat("0 to ", plan.flat_elements));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFiles(const std::vector<CheckpointFile>& files, std::size_t world_size) {
  if (files.size() != world_size + 1) {
    return Refuse("the number of files", absl::StrCat(files.size()),
                  absl::StrCat(world_size + 1, ": one for each shard and the replicated one"));
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    const CheckpointFile& file = files[i];
    const std::string expected =
        i < world_size ? ShardFile(static_cast<int>(i), static_cast<int>(world_size))
                       : kReplicatedFile;
    if (file.name != expected) return Refuse("a file's name", Quoted(file.name), expected);
    const std::string what = absl::StrCat("of file ", file.name, ", ");
    LOCKSTEP_RETURN_IF_ERROR(CheckCount(what + "the size", file.sum.bytes));
    const bool is_checksum =
        file.sum.checksum.size() == Checksum::kDigits &&
        std::ranges::all_of(file.sum.checksum, [](char c) {
          return absl::ascii_isxdigit(static_cast<unsigned char>(c)) && !absl::ascii_isupper(c);
        });
    if (!is_checksum) {
      return Refuse(what + "the checksum", Quoted(file.sum.checksum),
                    absl::StrCat(Checksum::kDigits, " lower-case hexadecimal digits"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const CheckpointManifest& manifest) {
  LOCKSTEP_RETURN_IF_ERROR(CheckId(manifest.id));
  LOCKSTEP_RETURN_IF_ERROR(CheckCount("the number of samples", manifest.samples));
  LOCKSTEP_RETURN_IF_ERROR(CheckCount("the policy's revision", manifest.policy_revision));
  LOCKSTEP_RETURN_IF_ERROR(CheckCount("the optimizer's number of steps", manifest.optimizer_steps));
  if (WellFormedPrefix(manifest.policy) != manifest.policy.size()) {
    return Refuse("the policy", Quoted(manifest.policy), "UTF-8");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckLearningRate(manifest.learning_rate));
  LOCKSTEP_RETURN_IF_ERROR(Validate(manifest.optimizer));
  LOCKSTEP_RETURN_IF_ERROR(Validate(manifest.model));
  const std::string optimizer = Describe(manifest.optimizer);
  if (manifest.model.optimizer != optimizer) {
    return Refuse("the model's optimizer", Quoted(manifest.model.optimizer), optimizer);
  }
  LOCKSTEP_RETURN_IF_ERROR(Validate(manifest.plan));
  LOCKSTEP_RETURN_IF_ERROR(CheckPlacements(manifest.model, manifest.plan));
  LOCKSTEP_RETURN_IF_ERROR(CheckSlots(manifest.slots, manifest.plan));
  return CheckFiles(manifest.files, manifest.plan.shards.size());
}

}  // namespace lockstep
