#include "worker/checkpoint/sample_checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/checkpoint/checkpoint_layout.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace lockstep {
namespace {

std::vector<std::byte> RandomBytes(Prng& prng, std::int64_t bytes) {
  std::vector<std::byte> drawn(static_cast<std::size_t>(bytes));
  for (std::byte& byte : drawn) byte = static_cast<std::byte>(prng.Below(256));
  return drawn;
}

TensorSpec RandomSpec(Prng& prng, std::string name, DType dtype, std::int64_t elements) {
  TensorSpec spec{.name = std::move(name), .dtype = dtype};
  for (std::int64_t i = prng.Between(0, 3); i > 0; --i) {
    spec.shape.push_back(prng.Between(0, elements));
  }
  return spec;
}

DType RandomSavedType(Prng& prng) {
  DType dtype = DType::kUnspecified;
  while (SafetensorsName(dtype).empty()) dtype = static_cast<DType>(prng.Between(1, 21));
  return dtype;
}

// A span with the part's elements of values that begin at element `begin`.
template <typename T>
std::span<const T> Part(const std::vector<T>& values, std::int64_t begin, const Shard& part,
                        std::int64_t per_element = 1) {
  if (part.elements() == 0) return {};
  return std::span(values).subspan(static_cast<std::size_t>((part.begin - begin) * per_element),
                                   static_cast<std::size_t>(part.elements() * per_element));
}

absl::Status Differs(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, " was read with other values"));
}

}  // namespace

SampleCheckpoint RandomCheckpoint(Prng& prng, int world_size, std::int64_t step,
                                  std::int64_t elements) {
  constexpr DType kTrainable[] = {DType::kFloat32, DType::kBfloat16, DType::kFloat16};
  SampleCheckpoint sample;
  CheckpointManifest& manifest = sample.manifest;
  manifest.id = {.job = "job", .epoch = 7, .step = step};
  manifest.samples = step * 32;
  manifest.policy_revision = 3;
  manifest.policy = "rules {\n  \"größe\"\n}\n";
  manifest.learning_rate = prng.Unit();
  manifest.optimizer = AdamW{.lr = prng.Unit(), .groups = {{"**.bias", 0.5, 0.0}, {"layer0.*", 2}}};
  manifest.optimizer_steps = step;
  manifest.model.optimizer = Describe(manifest.optimizer);
  for (int i = 0; i < 8; ++i) {
    const bool trainable = i < 6;
    const DType dtype = trainable ? kTrainable[prng.Below(3)] : RandomSavedType(prng);
    const std::string name = absl::StrCat("layer", i, i % 2 == 0 ? ".weight" : ".bias");
    manifest.model.parameters.push_back(
        {.tensor = RandomSpec(prng, name, dtype, elements), .trainable = trainable});
  }
  for (int i = 0; i < 6; ++i) {
    manifest.model.buffers.push_back(
        RandomSpec(prng, absl::StrCat("puffer", i, ".größe"), RandomSavedType(prng), elements));
  }
  manifest.model.buffers.push_back({.name = "lazy"});
  manifest.plan = *PlanShards(manifest.model, world_size);
  const ShardPlan& plan = manifest.plan;
  const bool has_floats = !plan.blocks.empty() && plan.blocks[0].dtype == DType::kFloat32;
  manifest.slots = {{.name = "exp_avg"},
                    {.name = "exp_avg_sq"},
                    {.name = "master", .begin = has_floats ? plan.blocks[0].end : 0}};
  for (const CheckpointSlot& slot : manifest.slots) {
    std::vector<float>& values = sample.slots.emplace_back();
    for (std::int64_t i = slot.begin; i < plan.flat_elements; ++i) {
      values.push_back(static_cast<float>(prng.Unit()));
    }
  }
  for (const Block& block : plan.blocks) {
    sample.parameters.push_back(RandomBytes(prng, block.elements() * ElementBytes(block.dtype)));
  }
  for (const TensorSpec& tensor : ReplicatedTensors(manifest.model)) {
    sample.replicated[tensor.name] = RandomBytes(prng, tensor.bytes());
  }
  return sample;
}

SampleCheckpoint Resharded(const SampleCheckpoint& sample, int world_size) {
  SampleCheckpoint resharded = sample;
  resharded.manifest.plan = *PlanShards(sample.manifest.model, world_size);
  return resharded;
}

absl::Status WriteSample(FileSystem& files, const std::string& root, SampleCheckpoint& sample) {
  CheckpointManifest& manifest = sample.manifest;
  const ShardPlan& plan = manifest.plan;
  manifest.files.clear();
  for (std::size_t rank = 0; rank < plan.shards.size(); ++rank) {
    const Shard& shard = plan.shards[rank];
    ShardData data;
    for (std::size_t i = 0; i < sample.slots.size(); ++i) {
      const std::int64_t begin = manifest.slots[i].begin;
      data.slots.push_back(
          Part(sample.slots[i], begin, PartOf(shard, begin, plan.flat_elements)));
    }
    for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
      const Block& block = plan.blocks[i];
      data.parameters.push_back(Part(sample.parameters[i], block.begin,
                                     PartOf(shard, block.begin, block.end),
                                     ElementBytes(block.dtype)));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(CheckpointFile file,
                              WriteShard(files, root, manifest.id, plan, manifest.slots,
                                         static_cast<int>(rank), data));
    manifest.files.push_back(std::move(file));
  }
  std::vector<FileTensor> replicated;
  for (const TensorSpec& tensor : ReplicatedTensors(manifest.model)) {
    replicated.push_back({.spec = tensor, .bytes = sample.replicated.at(tensor.name)});
  }
  LOCKSTEP_ASSIGN_OR_RETURN(CheckpointFile file,
                            WriteReplicated(files, root, manifest.id, replicated));
  manifest.files.push_back(std::move(file));
  return Commit(files, root, manifest);
}

absl::Status ReadAndCompare(const FileSystem& files, const std::string& root,
                            const SampleCheckpoint& sample, int readers) {
  const CheckpointManifest& expected = sample.manifest;
  LOCKSTEP_ASSIGN_OR_RETURN(const ShardPlan plan, PlanShards(expected.model, readers));
  for (const Shard& shard : plan.shards) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                              CheckpointReader::Open(files, root, expected.id.step));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ManifestToText(reader->manifest()));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string expected_text, ManifestToText(expected));
    if (text != expected_text) return Differs("the manifest");
    for (std::size_t i = 0; i < sample.slots.size(); ++i) {
      const CheckpointSlot& slot = expected.slots[i];
      const Shard part = PartOf(shard, slot.begin, plan.flat_elements);
      if (part.elements() == 0) continue;
      std::vector<float> read(static_cast<std::size_t>(part.elements()));
      LOCKSTEP_RETURN_IF_ERROR(reader->ReadSlot(slot.name, part.begin, read));
      if (!std::ranges::equal(read, Part(sample.slots[i], slot.begin, part))) {
        return Differs(slot.name);
      }
    }
    for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
      const Block& block = plan.blocks[i];
      const Shard part = PartOf(shard, block.begin, block.end);
      if (part.elements() == 0) continue;
      const int bytes = ElementBytes(block.dtype);
      std::vector<std::byte> read(static_cast<std::size_t>(part.elements() * bytes));
      LOCKSTEP_RETURN_IF_ERROR(reader->ReadParameters(i, part.begin, read));
      if (!std::ranges::equal(read, Part(sample.parameters[i], block.begin, part, bytes))) {
        return Differs(absl::StrCat("block ", i));
      }
    }
    for (const auto& [name, values] : sample.replicated) {
      std::vector<std::byte> read(values.size());
      LOCKSTEP_RETURN_IF_ERROR(reader->ReadReplicated(name, read));
      if (read != values) return Differs(name);
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep
