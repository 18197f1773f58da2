// Exported checkpoints, read by LibTorch, and by Python's torch where the peers' environment is
// installed (./lockstep test --peers does that).
#include <pwd.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tools/process/child_process.h"
#include "tools/process/runfiles.h"
#include "worker/checkpoint/checkpoint_layout.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/export.h"
#include "worker/checkpoint/sample_checkpoint.h"
#include "worker/optim/optimizer.h"

namespace lockstep {
namespace {

struct Exported {
  std::string folder;  // of the checkpoint
  std::string path;    // of the export
  SampleCheckpoint sample;
};

// A checkpoint of three ranks with that optimizer and the slots it has.
Exported Export(const std::string& name, OptimizerConfig optimizer,
                const std::vector<std::string>& slots, std::uint64_t seed = 1) {
  Prng prng(seed);
  Exported exported = {.sample = RandomCheckpoint(prng, 3, 21)};
  CheckpointManifest& manifest = exported.sample.manifest;
  manifest.optimizer = std::move(optimizer);
  manifest.model.optimizer = Describe(manifest.optimizer);
  // Of exp_avg, exp_avg_sq and master the first ones take the names, and what is left goes.
  const std::size_t gone = 2 - slots.size();
  manifest.slots.erase(manifest.slots.begin(), manifest.slots.begin() + gone);
  exported.sample.slots.erase(exported.sample.slots.begin(),
                              exported.sample.slots.begin() + gone);
  for (std::size_t i = 0; i < slots.size(); ++i) manifest.slots[i].name = slots[i];
  const std::string root = absl::StrCat(testing::TempDir(), "/", name, seed);
  exported.folder = absl::StrCat(root, "/", StepDirectory(21));
  exported.path = root + "/model.pt";
  LOCKSTEP_EXPECT_OK(WriteSample(HostFileSystem(), root, exported.sample));
  auto reader = CheckpointReader::Open(HostFileSystem(), root, 21);
  LOCKSTEP_EXPECT_OK(reader);
  if (reader.ok()) LOCKSTEP_EXPECT_OK(ExportToTorch(**reader, HostFileSystem(), exported.path));
  return exported;
}

c10::IValue Load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return torch::pickle_load(
      std::vector<char>(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
}

c10::IValue At(const c10::IValue& dict, const c10::IValue& key) {
  return dict.toGenericDict().at(key);
}

void ExpectBytes(const at::Tensor& tensor, const TensorSpec& spec, const void* expected) {
  EXPECT_EQ(tensor.sizes().vec(), spec.shape) << spec.name;
  EXPECT_EQ(tensor.nbytes(), static_cast<std::size_t>(spec.bytes())) << spec.name;
  EXPECT_TRUE(tensor.is_contiguous()) << spec.name;
  if (tensor.nbytes() == 0) return;
  EXPECT_EQ(std::memcmp(tensor.data_ptr(), expected, tensor.nbytes()), 0) << spec.name;
}

// LibTorch's reader knows typed storages only, and Python's all.
bool IsForLibTorch(DType dtype) {
  return dtype != DType::kUint16 && dtype != DType::kUint32 && dtype != DType::kUint64 &&
         dtype != DType::kFloat8E4m3fn && dtype != DType::kFloat8E5m2 &&
         dtype != DType::kFloat8E8m0fnu;
}

bool IsForLibTorch(const Manifest& model) {
  for (const TensorSpec& tensor : ReplicatedTensors(model)) {
    if (!IsForLibTorch(tensor.dtype)) return false;
  }
  return true;
}

TEST(Export, LibTorchReadsAllOfIt) {
  const AdamW optimizer = {.lr = 0.25,
                           .beta1 = 0.75,
                           .weight_decay = 0.5,
                           .groups = {{"**.bias", 0.5, 0.0}, {"layer0.*", 2}}};
  std::uint64_t seed = 1;
  for (Prng prng(seed); !IsForLibTorch(RandomCheckpoint(prng, 3, 21).manifest.model);
       prng = Prng(++seed)) {
  }
  const Exported exported = Export("libtorch", optimizer, {"exp_avg", "exp_avg_sq"}, seed);
  const CheckpointManifest& manifest = exported.sample.manifest;
  const c10::IValue loaded = Load(exported.path);
  const c10::IValue model = At(loaded, "model");
  EXPECT_EQ(model.toGenericDict().size(),
            manifest.model.parameters.size() + manifest.model.buffers.size() - 1);  // no "lazy"
  for (const TensorSpec& tensor : ReplicatedTensors(manifest.model)) {
    ExpectBytes(At(model, tensor.name).toTensor(), tensor,
                exported.sample.replicated.at(tensor.name).data());
  }
  // By groups: of none of the patterns, biases, layer0.weight.
  const std::vector<int> order = {2, 4, 6, 1, 3, 5, 7, 0};
  const c10::IValue state = At(At(loaded, "optimizer"), "state");
  EXPECT_EQ(state.toGenericDict().size(), 6u);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ParameterSpec& parameter = manifest.model.parameters[order[i]];
    if (!parameter.trainable) continue;
    const ShardPlan& plan = manifest.plan;
    const auto placement =
        std::ranges::find(plan.placements, parameter.tensor.name, &Placement::name);
    const std::int64_t offset = placement->offset;
    if (placement->elements > 0) {
      const std::size_t block = BlockAt(plan, offset);
      ExpectBytes(At(model, parameter.tensor.name).toTensor(), parameter.tensor,
                  exported.sample.parameters[block].data() +
                      (offset - plan.blocks[block].begin) * ElementBytes(parameter.tensor.dtype));
    }
    TensorSpec floats = parameter.tensor;
    floats.dtype = DType::kFloat32;
    const c10::IValue own = At(state, static_cast<std::int64_t>(i));
    EXPECT_EQ(own.toGenericDict().size(), 3u);
    ExpectBytes(At(own, "exp_avg").toTensor(), floats, exported.sample.slots[0].data() + offset);
    ExpectBytes(At(own, "exp_avg_sq").toTensor(), floats, exported.sample.slots[1].data() + offset);
    EXPECT_EQ(At(own, "step").toTensor().item<float>(), 21);
    EXPECT_EQ(At(own, "step").toTensor().dim(), 0);
    const std::int64_t short_begin = manifest.slots[2].begin;
    const bool has_master = At(loaded, "masters").toGenericDict().contains(parameter.tensor.name);
    EXPECT_EQ(has_master, offset >= short_begin);
    if (has_master) {
      ExpectBytes(At(At(loaded, "masters"), parameter.tensor.name).toTensor(), floats,
                  exported.sample.slots[2].data() + (offset - short_begin));
    }
  }
  const c10::IValue groups = At(At(loaded, "optimizer"), "param_groups");
  ASSERT_EQ(groups.toListRef().size(), 3u);
  const auto& biases = groups.toListRef()[1];
  EXPECT_EQ(At(biases, "lr").toDouble(), 0.5 * manifest.learning_rate);
  EXPECT_EQ(At(biases, "weight_decay").toDouble(), 0);
  EXPECT_EQ(At(groups.toListRef()[2], "weight_decay").toDouble(), 0.5);
  EXPECT_EQ(At(biases, "betas").toTupleRef().elements()[0].toDouble(), 0.75);
  EXPECT_EQ(At(biases, "params").toListRef().size(), 4u);
  EXPECT_EQ(At(biases, "params").toListRef()[0].toInt(), 3);
}

// The interpreter of ./lockstep test --peers; empty: not installed.
std::string PeersPython() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const passwd* user = getpwuid(getuid());
  const std::string folder = cache != nullptr  ? cache
                             : user == nullptr ? ""
                                               : absl::StrCat(user->pw_dir, "/.cache");
  const std::string venv = folder + "/lockstep/peers/venv";
  // Written when all is installed.
  if (!std::filesystem::exists(venv + "/lockstep-peers.txt")) return "";
  return venv + "/bin/python";
}

TEST(Export, PythonsTorchLoadsItWithWeightsOnlyAndTrainsOn) {
  const std::string python = PeersPython();
  if (python.empty()) {
    GTEST_SKIP() << "Python's torch is not installed; ./lockstep test --peers does that";
  }
  const std::vector<ParameterGroup> groups = {{"**.bias", 0.5, 0.0}, {"layer0.*", 2}};
  const std::pair<OptimizerConfig, std::vector<std::string>> kOptimizers[] = {
      {Sgd{.lr = 0.1, .groups = groups}, {}},
      {Sgd{.lr = 0.1, .momentum = 0.9, .nesterov = true}, {"momentum_buffer"}},
      {Adam{.lr = 0.1, .weight_decay = 0.125, .groups = groups}, {"exp_avg", "exp_avg_sq"}},
      {AdamW{.groups = groups}, {"exp_avg", "exp_avg_sq"}},
      {Adagrad{.lr_decay = 0.5, .initial_accumulator_value = 2}, {"sum"}}};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string script,
                                FindRunfile("lockstep/tests/checkpoint/check_export.py"));
  std::vector<std::string> arguments = {script};
  for (const auto& [optimizer, slots] : kOptimizers) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const Exported exported =
          Export(absl::StrCat("python", arguments.size()), optimizer, slots, seed);
      arguments.push_back(exported.folder);
      arguments.push_back(exported.path);
    }
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const RunResult result,
      RunProgram({.program = python, .arguments = arguments}, absl::Minutes(4)));
  EXPECT_TRUE(result.exit.ok()) << result.output;
  EXPECT_EQ(result.output, "20 exports are right\n");
}

}  // namespace
}  // namespace lockstep
