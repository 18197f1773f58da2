// How long what a step moves takes over NcclFactory with TorchMath, one rank per GPU, each a
// thread. Results are checked before they are timed.
//
//   gpu_step --nccl=FILE --cuda-runtime=FILE --device=cuda [--small]
//
// Prints one line of JSON for each measurement. A failure ends the process, with exit code 1 and
// a message: the ranks of others may be waiting.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstdio>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/from_blob.h"
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/DeviceGuard.h"
#include "c10/util/Exception.h"
#include "common/base/status_macros.h"
#include "common/sharding/shard_plan.h"
#include "tests/bench/statistics.h"
#include "worker/device/device_math.h"
#include "worker/torch/torch_math.h"
#include "worker/transport/nccl/nccl_api.h"
#include "worker/transport/nccl/nccl_transport.h"

namespace lockstep {
namespace {

constexpr int kWarmUps = 5;
constexpr int kRepetitions = 30;
constexpr std::int64_t kMatrixElements = 2048 * 2048;
constexpr std::int64_t kMatrices = 5;
// AdamW as torch has it, but for a step that also shows in bfloat16.
const AdamW kAdamW = {.lr = 0.1};

struct Setting {
  NcclApi api;
  c10::DeviceType device = c10::kCUDA;
  int ranks = 1;
  std::vector<std::int64_t> moved_bytes;  // of what is broadcast and reduced
  std::int64_t step_elements = 0;
};

[[noreturn]] void Fail(int rank, const absl::Status& status) {
  // Whole, whatever other ranks write.
  std::cerr << absl::StrCat("rank ", rank, ": ", status.ToString(), "\n") << std::flush;
  std::_Exit(1);
}

absl::Status Expect(bool is_right, absl::string_view what) {
  return is_right ? absl::OkStatus()
                  : absl::InternalError(absl::StrCat("the results of ", what, " are wrong"));
}

// The times of all ranks, which start together; the slowest counts.
class Times {
 public:
  explicit Times(int ranks) : start_(ranks), milliseconds_(ranks) {}

  absl::Status Measure(int rank, absl::string_view name, std::int64_t bytes,
                       const std::function<absl::Status()>& run) {
    std::vector<double>& mine = milliseconds_[rank];
    mine.clear();
    for (int i = -kWarmUps; i < kRepetitions; ++i) {
      start_.arrive_and_wait();
      const auto begin = std::chrono::steady_clock::now();
      LOCKSTEP_RETURN_IF_ERROR(run());
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      if (i >= 0) mine.push_back(took.count());
    }
    start_.arrive_and_wait();
    if (rank == 0) Print(name, bytes);
    start_.arrive_and_wait();
    return absl::OkStatus();
  }

 private:
  void Print(absl::string_view name, std::int64_t bytes) const {
    std::vector<double> slowest = milliseconds_[0];
    for (const std::vector<double>& rank : milliseconds_) {
      for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], rank[i]);
    }
    const Summary summary = Summarize(slowest);
    absl::PrintF(
        "{\"name\": \"%s\", \"ranks\": %d, \"bytes\": %d, \"median_ms\": %.6g, \"best_ms\": %.6g, "
        "\"gb_per_s\": %.6g}\n",
        name, milliseconds_.size(), bytes, summary.median, summary.best,
        static_cast<double>(bytes) / summary.median / 1e6);
    std::fflush(stdout);
  }

  std::barrier<> start_;
  std::vector<std::vector<double>> milliseconds_;  // by rank
};

// One rank's end of it.
class RankBench {
 public:
  RankBench(const Setting* setting, int rank, Transport* transport, DeviceMath* math, Times* times)
      : setting_(*setting), rank_(rank), transport_(*transport), math_(*math), times_(*times) {}

  absl::Status Run() {
    for (const std::int64_t bytes : setting_.moved_bytes) {
      // In a world of one rank nothing moves.
      if (setting_.ranks > 1) LOCKSTEP_RETURN_IF_ERROR(Broadcast(bytes));
      LOCKSTEP_RETURN_IF_ERROR(ReduceToOwners(bytes));
    }
    LOCKSTEP_RETURN_IF_ERROR(Step(DType::kFloat32, at::kFloat));
    return Step(DType::kBfloat16, at::kBFloat16);
  }

 private:
  c10::Device device() const { return {setting_.device, DeviceNumber()}; }
  c10::DeviceIndex DeviceNumber() const {
    return static_cast<c10::DeviceIndex>(setting_.device == c10::kCPU ? -1 : rank_);
  }
  // 0, 1, ... 96, 0, ...: small integers, whose sums are exact.
  at::Tensor Pattern(std::int64_t elements) const {
    return at::arange(elements, at::TensorOptions().dtype(at::kLong).device(device()))
        .remainder(97)
        .to(at::kFloat);
  }
  at::Tensor View(const Arena& arena, at::ScalarType type) const {
    return at::for_blob(arena.data, {arena.elements})
        .options(at::TensorOptions().dtype(type).device(device()))
        .target_device(device())
        .make_tensor();
  }

  // Element-wise shards of one tensor, as training has them.
  absl::StatusOr<std::vector<Shard>> ShardsOf(DType dtype, std::int64_t elements) const {
    const Manifest manifest = {
        .parameters = {{.tensor = {.name = "w", .dtype = dtype, .shape = {elements}}}}};
    LOCKSTEP_ASSIGN_OR_RETURN(ShardPlan plan, PlanShards(manifest, setting_.ranks));
    return std::move(plan.shards);
  }

  absl::Status Broadcast(std::int64_t bytes) {
    const std::int64_t elements = bytes / 4;
    const at::Tensor expected = Pattern(elements);
    at::Tensor tensor = rank_ == 0 ? expected.clone() : at::empty_like(expected).fill_(-1);
    const TensorView view = {
        .spec = {.name = "t", .dtype = DType::kFloat32, .shape = {elements}},
        .data = static_cast<std::byte*>(tensor.mutable_data_ptr()),
        .on_device = setting_.device != c10::kCPU};
    const auto run = [&] { return transport_.Broadcast({&view, 1}, 0); };
    LOCKSTEP_RETURN_IF_ERROR(run());
    LOCKSTEP_RETURN_IF_ERROR(Expect(at::equal(tensor, expected), "the broadcast"));
    return times_.Measure(rank_, "lockstep.broadcast", bytes, run);
  }

  absl::Status ReduceToOwners(std::int64_t bytes) {
    const std::int64_t elements = bytes / 4;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Arena arena, transport_.Allocate(ArenaUse::kGradients, DType::kFloat32, elements));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Shard> shards, ShardsOf(arena.dtype, elements));
    const Shard mine = shards[rank_];
    const std::vector<float> weights(setting_.ranks, 1.0f);
    const at::Tensor pattern = Pattern(elements);
    View(arena, at::kFloat).copy_(pattern * (rank_ + 1));
    absl::Status copied;
    const ConsumeSums keep = [&](std::int64_t begin, std::span<const float> sums) {
      copied.Update(math_.Copy(sums, arena.floats().data() + mine.begin + begin));
    };
    LOCKSTEP_RETURN_IF_ERROR(transport_.ReduceToOwners(arena, shards, weights, keep));
    LOCKSTEP_RETURN_IF_ERROR(copied);
    const int sum_of_ranks = setting_.ranks * (setting_.ranks + 1) / 2;
    LOCKSTEP_RETURN_IF_ERROR(
        Expect(at::equal(View(arena, at::kFloat).slice(0, mine.begin, mine.end),
                         pattern.slice(0, mine.begin, mine.end) * sum_of_ranks),
               "the reduction to owners"));
    const ConsumeSums ignore = [](std::int64_t, std::span<const float>) {};
    return times_.Measure(rank_, "lockstep.reduce_to_owners", bytes, [&] {
      return transport_.ReduceToOwners(arena, shards, weights, ignore);
    });
  }

  // Reduces gradients, updates the rank's shard and spreads it, as ShardUpdate does.
  absl::Status Step(DType dtype, at::ScalarType type) {
    const std::int64_t elements = setting_.step_elements;
    LOCKSTEP_ASSIGN_OR_RETURN(const Arena gradients,
                              transport_.Allocate(ArenaUse::kGradients, dtype, elements));
    LOCKSTEP_ASSIGN_OR_RETURN(const Arena parameters,
                              transport_.Allocate(ArenaUse::kParameters, dtype, elements));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Shard> shards, ShardsOf(dtype, elements));
    const Shard mine = shards[rank_];
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::unique_ptr<ShardOptimizer> optimizer,
        math_.MakeOptimizer(kAdamW, {{0, mine.elements(), kNoGroup}},
                            dtype == DType::kFloat32 ? mine.elements() : 0));
    const std::vector<float> weights(setting_.ranks, 1.0f);
    const auto step = [&]() -> absl::Status {
      optimizer->BeginStep(1.0f / static_cast<float>(setting_.ranks));
      LOCKSTEP_RETURN_IF_ERROR(transport_.UpdateShards(
          gradients, parameters, shards, weights,
          [&](std::int64_t begin, std::span<const float> sums) {
            optimizer->Update(begin, sums, dtype, parameters.at(mine.begin + begin));
          }));
      return optimizer->EndStep();
    };

    const at::Tensor pattern = Pattern(elements);
    const at::Tensor before = (pattern / 97 + 0.5).to(type);
    View(parameters, type).copy_(before);
    View(gradients, type).copy_((pattern - 48) * (rank_ + 1));
    LOCKSTEP_RETURN_IF_ERROR(step());
    // At the first step both moments are those of the one gradient, so that it is its sign that
    // counts. Their mean is of that sign; 0 stays 0.
    const at::Tensor expected =
        before.to(at::kFloat) * (1 - kAdamW.lr * kAdamW.weight_decay) -
        (pattern - 48).sign() * kAdamW.lr;
    const double tolerance = dtype == DType::kFloat32 ? 1e-5 : 1.0 / 128;
    LOCKSTEP_RETURN_IF_ERROR(Expect(
        (View(parameters, type).to(at::kFloat) - expected).abs().max().item<float>() <= tolerance,
        absl::StrCat("the step of ", DTypeName(dtype))));
    return times_.Measure(rank_, absl::StrCat("lockstep.step.", DTypeName(dtype)),
                          parameters.bytes(), step);
  }

  const Setting& setting_;
  const int rank_;
  Transport& transport_;
  DeviceMath& math_;
  Times& times_;
};

absl::Status RunRank(const Setting& setting, int rank, const ExchangeEndpoint& exchange,
                     Times& times) {
  const c10::Device device(setting.device,
                           static_cast<c10::DeviceIndex>(setting.device == c10::kCPU ? -1 : rank));
  // LibTorch asks for it when kernels are launched.
  const c10::DeviceGuard current(device);
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<DeviceMath> made, MakeTorchMath(device));
  const std::shared_ptr<DeviceMath> math = std::move(made);
  Group group = {.epoch = Epoch(1), .rank = rank};
  for (int r = 0; r < setting.ranks; ++r) group.members.push_back(absl::StrCat("gpu", r));
  NcclFactory factory({.api = setting.api, .device = rank, .math = math});
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Transport> transport,
                            factory.Create(group, exchange));
  return RankBench(&setting, rank, transport.get(), math.get(), &times).Run();
}

void RunRanks(const Setting& setting) {
  std::promise<std::string> promise;
  const std::shared_future<std::string> endpoint = promise.get_future().share();
  const ExchangeEndpoint exchange =
      [&](const std::optional<std::string>& mine) -> absl::StatusOr<std::string> {
    if (mine.has_value()) promise.set_value(*mine);
    return endpoint.get();
  };
  Times times(setting.ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < setting.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const absl::Status status = RunRank(setting, rank, exchange, times);
        if (!status.ok()) Fail(rank, status);
      } catch (const c10::Error& error) {
        Fail(rank, absl::InternalError(error.what_without_backtrace()));
      } catch (const std::exception& error) {
        Fail(rank, absl::InternalError(error.what()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int Main(int argc, char** argv) {
  NcclLibraries libraries;
  std::string device;
  bool small = false;
  CLI::App app("Times of the NCCL transport with LibTorch's arithmetic");
  app.add_option("--nccl", libraries.nccl, "libnccl.so.2");
  app.add_option("--cuda-runtime", libraries.cuda_runtime, "libcudart.so.13");
  app.add_option("--device", device, "cuda, or cpu on a fake of NCCL and CUDA")->required();
  app.add_flag("--small", small, "a thousandth of the sizes: to try it out");
  CLI11_PARSE(app, argc, argv);

  absl::StatusOr<NcclApi> api = LoadNcclApi(libraries);
  if (!api.ok()) {
    std::cerr << api.status().message() << std::endl;
    return 2;
  }
  Setting setting = {.api = *api,
                     .device = c10::Device(device).type(),
                     .moved_bytes = {64 << 20, 256 << 20},
                     .step_elements = kMatrices * kMatrixElements};
  if (small) {
    for (std::int64_t& bytes : setting.moved_bytes) bytes /= 1024;
    setting.step_elements /= 1024;
  }
  setting.api.GetDeviceCount(&setting.ranks);
  RunRanks(setting);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
