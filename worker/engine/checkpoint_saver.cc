#include "worker/engine/checkpoint_saver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/engine/content_reader.h"
#include "worker/engine/gather.h"

namespace lockstep {
namespace {

// What a rank says of its file.
struct WrittenFile {
  std::int32_t failed = 0;
  std::array<char, 64> name = {};
  std::int64_t bytes = 0;
  std::array<char, 64> checksum = {};
};

template <std::size_t kSize>
void Put(const std::string& text, std::array<char, kSize>& into) {
  std::memcpy(into.data(), text.data(), std::min(text.size(), kSize - 1));
}

WrittenFile RecordOf(const CheckpointFile& file) {
  WrittenFile record = {.bytes = file.sum.bytes};
  Put(file.name, record.name);
  Put(file.sum.checksum, record.checksum);
  return record;
}

CheckpointFile FileOf(const WrittenFile& record) {
  return {.name = record.name.data(),
          .sum = {.bytes = record.bytes, .checksum = record.checksum.data()}};
}

absl::StatusOr<std::vector<std::byte>> HostCopy(std::span<const std::byte> bytes,
                                                DeviceMath* math) {
  std::vector<std::byte> scratch;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::span<const std::byte> there, math->ToHost(bytes, scratch));
  if (there.data() == scratch.data()) return scratch;
  return std::vector<std::byte>(there.begin(), there.end());
}

}  // namespace

// All that is written, in host memory.
struct CheckpointSaver::Snapshot {
  std::vector<std::vector<std::byte>> slots;
  std::vector<std::vector<std::byte>> parameters;
  std::vector<TensorSpec> specs;  // of the replicated tensors; on rank 0 alone
  std::vector<std::vector<std::byte>> replicated;
};

CheckpointSaver::~CheckpointSaver() { Join(); }

absl::Status CheckpointSaver::Begin(Membership& now, Model* model) {
  Join();
  LOCKSTEP_ASSIGN_OR_RETURN(Manifest manifest, model->Describe());
  manifest.optimizer = Describe(now.optimizer);
  const ShardPlan& plan = now.proposal.plan;
  CheckpointManifest begun = {
      .id = {.job = options_.job, .epoch = now.proposal.epoch.value(), .step = now.commit.step()},
      .samples = now.commit.samples(),
      .policy_revision = now.protocol.revision().value(),
      .policy = Describe(now.protocol.policy()),
      .learning_rate = now.own().optimizer->learning_rate(),
      .optimizer = now.optimizer,
      .optimizer_steps = now.own().optimizer->step(),
      .model = manifest,
      .plan = plan};
  for (const ElementState& state : ElementStatesOf(now.optimizer)) {
    begun.slots.push_back({.name = state.name});
  }
  const auto first_short = std::ranges::find_if(
      plan.blocks, [](const Block& block) { return block.dtype != DType::kFloat32; });
  if (first_short != plan.blocks.end()) {
    begun.slots.push_back({.name = std::string(kMasters), .begin = first_short->begin});
  }

  auto snapshot = std::make_shared<Snapshot>();
  // A shard without short types has no masters, and its file an empty tensor.
  snapshot->slots.resize(begun.slots.size());
  const std::vector<StateSlot> state = now.own().optimizer->state();
  for (std::size_t i = 0; i < state.size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(snapshot->slots[i],
                              HostCopy(std::as_bytes(state[i].values), now.math.get()));
  }
  for (std::size_t i = 0; i < now.blocks.size(); ++i) {
    const ShardCopy::Part& part = now.own().parts[i];
    const std::int64_t bytes =
        part.elements.elements() * ElementBytes(now.blocks[i].parameters.dtype);
    LOCKSTEP_ASSIGN_OR_RETURN(
        std::vector<std::byte> parameters,
        HostCopy({part.parameters, static_cast<std::size_t>(bytes)}, now.math.get()));
    snapshot->parameters.push_back(std::move(parameters));
  }
  if (now.rank == 0) {
    std::set<std::string, std::less<>> names;
    for (const TensorSpec& spec : ReplicatedTensors(manifest)) names.insert(spec.name);
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::unique_ptr<TensorAccess> buffers,
        model->Buffers([&](absl::string_view name) { return names.contains(name); }));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<TensorAccess> frozen,
                              model->FrozenParameters());
    ContentReader contents(now.math.get());
    for (const TensorAccess* access : {frozen.get(), buffers.get()}) {
      for (const TensorView& view : access->views()) {
        LOCKSTEP_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, contents.Bytes(view));
        snapshot->specs.push_back(view.spec);
        snapshot->replicated.emplace_back(bytes.begin(), bytes.end());
      }
    }
  }

  begun_ = begun;
  const int rank = now.rank;
  writer_ = std::thread([this, begun = std::move(begun), snapshot, rank] {
    std::vector<CheckpointFile> files;
    const auto write = [&]() -> absl::Status {
      ShardData data;
      for (const std::vector<std::byte>& slot : snapshot->slots) {
        data.slots.push_back({reinterpret_cast<const float*>(slot.data()),
                              slot.size() / sizeof(float)});
      }
      for (const std::vector<std::byte>& part : snapshot->parameters) {
        data.parameters.push_back(part);
      }
      LOCKSTEP_ASSIGN_OR_RETURN(CheckpointFile shard,
                                WriteShard(files_, options_.directory, begun.id, begun.plan,
                                           begun.slots, rank, data));
      files.push_back(std::move(shard));
      if (rank != 0) return absl::OkStatus();
      std::vector<FileTensor> tensors;
      for (std::size_t i = 0; i < snapshot->specs.size(); ++i) {
        tensors.push_back({snapshot->specs[i], snapshot->replicated[i]});
      }
      LOCKSTEP_ASSIGN_OR_RETURN(
          CheckpointFile replicated,
          WriteReplicated(files_, options_.directory, begun.id, tensors));
      files.push_back(std::move(replicated));
      return absl::OkStatus();
    };
    const absl::Status status = write();
    if (status.ok()) {
      written_ = std::move(files);
    } else {
      written_ = status;
      LogWarning("the checkpoint of step ", begun.id.step, " is not written: ", status.message());
    }
    through_with_ = begun.id.step;
  });
  return absl::OkStatus();
}

void CheckpointSaver::Await() { Join(); }

absl::Status CheckpointSaver::Finish(Transport* transport) {
  Join();
  CheckpointManifest manifest = *std::exchange(begun_, std::nullopt);
  WrittenFile mine, replicated;
  if (written_.ok()) {
    mine = RecordOf(written_->front());
    if (transport->rank() == 0) replicated = RecordOf(written_->back());
  } else {
    mine.failed = 1;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<WrittenFile> shards,
                            Gather(transport, "the checkpoint's file", mine));
  const auto failed =
      std::ranges::find_if(shards, [](const WrittenFile& file) { return file.failed != 0; });
  outcome_ = absl::OkStatus();
  if (transport->rank() != 0) return absl::OkStatus();
  if (failed != shards.end()) {
    outcome_ = absl::UnavailableError(absl::StrCat(
        "step ", manifest.id.step, " has no checkpoint, since rank ", failed - shards.begin(),
        " could not write its part; its log says why"));
    LogWarning(outcome_.message());
    return absl::OkStatus();
  }
  for (const WrittenFile& shard : shards) manifest.files.push_back(FileOf(shard));
  manifest.files.push_back(FileOf(replicated));
  writer_ = std::thread([this, manifest = std::move(manifest)] {
    outcome_ = CommitAndTidy(manifest);
    if (!outcome_.ok()) LogWarning("a checkpoint is not finished: ", outcome_.message());
  });
  return absl::OkStatus();
}

absl::Status CheckpointSaver::CommitAndTidy(const CheckpointManifest& manifest) {
  LOCKSTEP_RETURN_IF_ERROR(Commit(files_, options_.directory, manifest));
  LogInfo("step ", manifest.id.step, " has a checkpoint in ", options_.directory);
  if (options_.keep == 0) return absl::OkStatus();
  return KeepNewest(files_, options_.directory, options_.keep);
}

const absl::Status& CheckpointSaver::AwaitOutcome() {
  Join();
  return outcome_;
}

bool CheckpointSaver::HasCheckpoint(std::int64_t step) {
  Join();
  return ReadManifest(files_, options_.directory, step).ok();
}

void CheckpointSaver::Abandon() { begun_.reset(); }

void CheckpointSaver::Join() {
  if (writer_.joinable()) writer_.join();
}

}  // namespace lockstep
