#include "worker/engine/checkpoint_loader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/checkpoint/checkpoint_directory.h"

namespace lockstep {
namespace {

constexpr std::int64_t kNone = -1;

// Parameters must be the same, and what the optimizer keeps for each element; buffers may have come
// or gone, and settings may be others.
absl::Status CheckFits(const CheckpointManifest& checkpoint, const Membership& now) {
  const ShardPlan& plan = now.proposal.plan;
  if (checkpoint.plan.placements != plan.placements || checkpoint.plan.blocks != plan.blocks) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint of step ", checkpoint.id.step, " of job '", checkpoint.id.job, "' has ",
        checkpoint.plan.placements.size(), " trainable parameters in ",
        checkpoint.plan.flat_elements, " elements, the model ", plan.placements.size(), " in ",
        plan.flat_elements, ", or they differ in name, type or order; resume with the model "
        "that was saved, or choose another directory"));
  }
  std::vector<std::string> wanted;
  for (const ElementState& state : ElementStatesOf(now.optimizer)) wanted.push_back(state.name);
  std::vector<std::string> saved;
  for (const CheckpointSlot& slot : checkpoint.slots) {
    if (slot.name != kMasters) saved.push_back(slot.name);
  }
  if (saved == wanted) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the checkpoint of step ", checkpoint.id.step, " was written with ",
      Describe(checkpoint.optimizer), ", whose state is not that of ", Describe(now.optimizer),
      "; resume with an optimizer of the same kind, or choose another directory"));
}

absl::Status LoadCopy(CheckpointReader& checkpoint, const Membership& now, ShardCopy& copy) {
  std::vector<std::byte> scratch;
  for (const StateSlot& slot : copy.optimizer->state()) {
    scratch.resize(slot.values.size_bytes());
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.ReadSlot(
        slot.name, copy.elements.begin + slot.begin,
        {reinterpret_cast<float*>(scratch.data()), slot.values.size()}));
    LOCKSTEP_RETURN_IF_ERROR(
        now.math->FromHost(scratch, reinterpret_cast<std::byte*>(slot.values.data())));
  }
  for (std::size_t i = 0; i < now.blocks.size(); ++i) {
    const ShardCopy::Part& part = copy.parts[i];
    if (part.elements.elements() == 0) continue;
    scratch.resize(part.elements.elements() * ElementBytes(now.blocks[i].parameters.dtype));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.ReadParameters(
        i, now.proposal.plan.blocks[i].begin + part.elements.begin, scratch));
    LOCKSTEP_RETURN_IF_ERROR(now.math->FromHost(scratch, part.parameters));
  }
  copy.optimizer->set_step(checkpoint.manifest().optimizer_steps);
  return copy.optimizer->SetLearningRate(checkpoint.manifest().learning_rate);
}

// Those that the checkpoint has in the same type and shape.
absl::Status LoadReplicated(CheckpointReader& checkpoint, const Membership& now, Model* model) {
  const std::vector<TensorSpec> saved = ReplicatedTensors(checkpoint.manifest().model);
  const auto load = [&](TensorAccess& access) -> absl::Status {
    std::vector<std::size_t> written;
    for (std::size_t i = 0; i < access.views().size(); ++i) {
      const TensorView& view = access.views()[i];
      if (std::ranges::find(saved, view.spec) == saved.end()) continue;
      std::vector<std::byte> bytes(view.bytes());
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.ReadReplicated(view.spec.name, bytes));
      if (view.on_device) {
        LOCKSTEP_RETURN_IF_ERROR(now.math->FromHost(bytes, view.data));
      } else {
        std::ranges::copy(bytes, view.data);
      }
      written.push_back(i);
    }
    return access.WriteBack(written);
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<TensorAccess> buffers,
                            model->Buffers([&](absl::string_view name) {
                              return std::ranges::any_of(saved, [&](const TensorSpec& spec) {
                                return spec.name == name;
                              });
                            }));
  LOCKSTEP_RETURN_IF_ERROR(load(*buffers));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<TensorAccess> frozen, model->FrozenParameters());
  return load(*frozen);
}

// What is behind the newest that can be used is damaged or was not finished, and would be in the
// way of those to come.
absl::Status RemoveBehind(FileSystem& files, const std::string& directory, std::int64_t step) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const std::optional<std::int64_t> other = StepOfDirectory(name);
    if (!other.has_value() || *other <= step) continue;
    LogWarning("what there is of a checkpoint of step ", *other,
               " cannot be used and is removed");
    LOCKSTEP_RETURN_IF_ERROR(RemoveCheckpoint(files, directory, *other));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenNewestCheckpoint(
    FileSystem& files, const std::string& directory, Membership& now) {
  std::int64_t step = kNone;
  if (now.rank == 0) {
    const absl::StatusOr<std::int64_t> newest = FindLatest(files, directory);
    if (!newest.ok() && !absl::IsNotFound(newest.status())) return newest.status();
    if (newest.ok()) step = *newest;
    LOCKSTEP_RETURN_IF_ERROR(RemoveBehind(files, directory, std::max<std::int64_t>(step, 0)));
  }
  const TensorView view = {{.name = "the checkpoint's step", .dtype = DType::kInt64},
                           reinterpret_cast<std::byte*>(&step)};
  LOCKSTEP_RETURN_IF_ERROR(now.transport->Broadcast({&view, 1}, 0));
  if (step == kNone) return nullptr;
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointReader> checkpoint,
                            CheckpointReader::Open(files, directory, step));
  LOCKSTEP_RETURN_IF_ERROR(CheckFits(checkpoint->manifest(), now));
  return checkpoint;
}

absl::Status LoadCheckpoint(CheckpointReader& checkpoint, Membership& now, Model* model) {
  for (ShardCopy& copy : now.copies) {
    LOCKSTEP_RETURN_IF_ERROR(LoadCopy(checkpoint, now, copy));
  }
  LOCKSTEP_RETURN_IF_ERROR(LoadReplicated(checkpoint, now, model));
  for (const BlockArenas& block : now.blocks) {
    LOCKSTEP_RETURN_IF_ERROR(now.transport->BroadcastFromOwners(block.parameters, block.shards));
  }
  now.protocol.ContinueBehind(checkpoint.manifest().id.step);
  return absl::OkStatus();
}

}  // namespace lockstep
