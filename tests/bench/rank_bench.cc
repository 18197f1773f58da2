#include "tests/bench/rank_bench.h"

#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/bench/bandwidth_probe.h"
#include "tests/bench/joined_rank.h"
#include "tests/bench/resident.h"
#include "tests/bench/resnet_buffers.h"
#include "tests/bench/timed_transport.h"
#include "tests/bench/train_bench.h"
#include "torch/torch.h"
#include "worker/memory/host_memory.h"

namespace lockstep {
namespace {

// Before a sync that finds its caches hot. The peers' number is the same.
constexpr int kWarmingSyncs = 5;

Nanos Between(BenchClock::time_point begin, BenchClock::time_point end) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count();
}

// A module of some float32 matrices, as a transformer's largest are.
std::shared_ptr<torch::nn::Module> MakeMatrices(std::int64_t count, std::int64_t side) {
  auto module = std::make_shared<torch::nn::Module>("matrices");
  for (std::int64_t i = 0; i < count; ++i) {
    module->register_parameter(absl::StrCat("weight", i), torch::full({side, side}, 0.01f));
  }
  return module;
}

class StepBench final : public RankBench {
 public:
  static absl::StatusOr<std::unique_ptr<RankBench>> Make(const RankConfig& config) {
    // What is freed does not count as held: the gradients that are made for each
    // repetition are as large as the model.
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    std::unique_ptr<StepBench> bench(new StepBench(config));
    bench->base_ = MeasureResident();
    bench->module_ = MakeMatrices(config.sizes.matrices, config.sizes.side);
    LOCKSTEP_ASSIGN_OR_RETURN(bench->joined_, JoinedRank::Join(config, *bench->module_));
    bench->after_joining_ = MeasureResident();
    ForgetPeak();
    return bench;
  }

  absl::Status Prepare(const std::string& name) override {
    // As backward hands them over.
    for (const at::Tensor& parameter : module_->parameters()) {
      parameter.backward(torch::full_like(parameter, 1e-3f * static_cast<float>(config_.rank + 1)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Repetition> Run(const std::string& name) override {
    const TimedTransport& transport = joined_->transport();
    const std::int64_t sent_before = transport.traffic().sent_bytes;
    const auto begin = BenchClock::now();
    LOCKSTEP_RETURN_IF_ERROR(joined_->session().Step({.samples = 1}));
    const auto end = BenchClock::now();
    sent_bytes_ = transport.traffic().sent_bytes - sent_before;
    Repetition repetition = {
        .total = Between(begin, end),
        .parts = {{"1 collect", Between(begin, transport.agree().begin)},
                  {"2 agree", Between(transport.agree().begin, transport.agree().end)}}};
    const auto add = [&](const std::string& part, BenchClock::time_point from,
                         BenchClock::time_point to) {
      repetition.parts[part] = Between(from, to);
    };
    if (transport.update().end > begin) {  // in one pass
      add("3 sum and update", transport.agree().end, transport.updated());
      add("4 spread", transport.updated(), transport.update().end);
      add("5 commit and report", transport.update().end, end);
      return repetition;
    }
    add("3 sum", transport.agree().end, transport.reduce().end);
    add("4 pass sums to buddies", transport.reduce().end, transport.pass().end);
    add("5 meet and update", transport.pass().end, transport.spread().begin);
    add("6 spread", transport.spread().begin, transport.spread().end);
    add("7 commit and report", transport.spread().end, end);
    return repetition;
  }

  nlohmann::json Leave() override {
    const Resident end = MeasureResident();
    const std::int64_t flat_bytes = config_.sizes.step_elements() * 4;
    const std::int64_t state_bytes = joined_->session().stats().optimizer_bytes;
    joined_->session().Leave(absl::OkStatus());
    return {{"base_bytes", base_.now_bytes},
            {"parameter_bytes", flat_bytes},
            {"gradient_bytes", flat_bytes},
            {"state_bytes", state_bytes},
            // Pages of the peers' arenas that this owner reads: theirs, but mapped here.
            {"mapped_peer_gradient_bytes",
             config_.transport == "shm" ? flat_bytes / config_.ranks * (config_.ranks - 1) : 0},
            {"bound_bytes", base_.now_bytes + 2 * flat_bytes + state_bytes},
            {"sent_bytes_per_step", sent_bytes_},
            {"peak_while_joining_bytes", after_joining_.peak_bytes},
            {"peak_bytes", end.peak_bytes},
            {"proportional_bytes", end.proportional_bytes}};
  }

 private:
  explicit StepBench(const RankConfig& config) : config_(config) {}

  const RankConfig config_;
  Resident base_;
  Resident after_joining_;
  std::int64_t sent_bytes_ = 0;  // in the last step
  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<JoinedRank> joined_;
};

// Its memory is laid out and shared as a step's: all ranks' gradients and one copy
// of the parameters in shared pages, moments in own ones.
class ProbeBench final : public RankBench {
 public:
  static absl::StatusOr<std::unique_ptr<RankBench>> Make(const RankConfig& config) {
    const std::int64_t elements = config.sizes.step_elements();
    const std::int64_t begin = elements * config.rank / config.ranks;
    const std::int64_t end = elements * (config.rank + 1) / config.ranks;
    const std::int64_t bytes = (end - begin) * static_cast<std::int64_t>(sizeof(float));
    LOCKSTEP_ASSIGN_OR_RETURN(HostMemory moment1, HostMemory::Allocate(bytes));
    LOCKSTEP_ASSIGN_OR_RETURN(HostMemory moment2, HostMemory::Allocate(bytes));
    return std::unique_ptr<RankBench>(
        new ProbeBench(config, begin, end, std::move(moment1), std::move(moment2)));
  }

  absl::Status Prepare(const std::string& name) override {
    std::ranges::fill(Arena(1 + config_.rank), 1e-3f * static_cast<float>(config_.rank + 1));
    return absl::OkStatus();
  }

  absl::StatusOr<Repetition> Run(const std::string& name) override {
    const auto begin = BenchClock::now();
    std::vector<std::span<const float>> gradients;
    for (int rank = 0; rank < config_.ranks; ++rank) gradients.push_back(Owned(1 + rank));
    StreamStep(gradients, Owned(0), Floats(moment1_), Floats(moment2_));
    return Repetition{.total = Between(begin, BenchClock::now())};
  }

 private:
  ProbeBench(const RankConfig& config, std::int64_t begin, std::int64_t end, HostMemory moment1,
             HostMemory moment2)
      : config_(config),
        begin_(begin),
        end_(end),
        moment1_(std::move(moment1)),
        moment2_(std::move(moment2)) {}

  std::span<float> Floats(const HostMemory& memory) const {
    return {reinterpret_cast<float*>(memory.data()), static_cast<std::size_t>(end_ - begin_)};
  }
  // 0: the parameters; 1 + r: rank r's gradients.
  std::span<float> Arena(int index) const {
    const std::int64_t elements = config_.sizes.step_elements();
    return {reinterpret_cast<float*>(config_.memory->room()) + index * elements,
            static_cast<std::size_t>(elements)};
  }
  std::span<float> Owned(int index) const { return Arena(index).subspan(begin_, end_ - begin_); }

  const RankConfig config_;
  const std::int64_t begin_;
  const std::int64_t end_;
  const HostMemory moment1_;
  const HostMemory moment2_;
};

class BuffersBench final : public RankBench {
 public:
  static absl::StatusOr<std::unique_ptr<RankBench>> Make(const RankConfig& config) {
    std::unique_ptr<BuffersBench> bench(new BuffersBench());
    bench->module_ = MakeResnetBuffers();
    bench->cold_.resize(config.sizes.cold_bytes);
    LOCKSTEP_ASSIGN_OR_RETURN(bench->joined_, JoinedRank::Join(config, *bench->module_));
    return bench;
  }

  absl::Status Prepare(const std::string& name) override {
    if (name == "buffers_cold") {
      std::memset(cold_.data(), ++touched_, cold_.size());
    } else {
      // The ranks slept while others worked, and with them went what their caches held.
      for (int i = 0; i < kWarmingSyncs; ++i) {
        LOCKSTEP_RETURN_IF_ERROR(joined_->session().BeforeForward());
        LOCKSTEP_RETURN_IF_ERROR(joined_->session().Step({.samples = 1}));
      }
    }
    transfers_ = joined_->session().stats().sync.transfers;
    return absl::OkStatus();
  }

  absl::StatusOr<Repetition> Run(const std::string& name) override {
    const auto begin = BenchClock::now();
    LOCKSTEP_RETURN_IF_ERROR(joined_->session().BeforeForward());
    return Repetition{.total = Between(begin, BenchClock::now())};
  }

  absl::Status Finish(const std::string& name) override {
    if (joined_->session().stats().sync.transfers == transfers_) {
      return absl::FailedPreconditionError("no buffer was moved: the sync was not due");
    }
    return joined_->session().Step({.samples = 1});
  }

  nlohmann::json Leave() override {
    joined_->session().Leave(absl::OkStatus());
    return nullptr;
  }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<JoinedRank> joined_;
  std::vector<unsigned char> cold_;
  int touched_ = 0;
  std::int64_t transfers_ = 0;
};

// By the transport alone; the session only forms it.
class TransportBench final : public RankBench {
 public:
  static absl::StatusOr<std::unique_ptr<RankBench>> Make(const RankConfig& config) {
    std::unique_ptr<TransportBench> bench(new TransportBench(config.sizes));
    bench->module_ = MakeMatrices(1, 4);
    bench->values_.resize(config.bench == "broadcast" ? config.sizes.broadcast_elements : 0,
                          static_cast<float>(config.rank));
    LOCKSTEP_ASSIGN_OR_RETURN(bench->joined_, JoinedRank::Join(config, *bench->module_));
    return bench;
  }

  absl::StatusOr<Repetition> Run(const std::string& name) override {
    const auto begin = BenchClock::now();
    if (name == "broadcast") {
      const TensorView view = {{.name = "values",
                                .dtype = DType::kFloat32,
                                .shape = {static_cast<std::int64_t>(values_.size())}},
                               reinterpret_cast<std::byte*>(values_.data())};
      LOCKSTEP_RETURN_IF_ERROR(joined_->transport().Broadcast({&view, 1}, /*root=*/0));
      return Repetition{.total = Between(begin, BenchClock::now())};
    }
    for (std::int64_t i = 0; i < sizes_.agreements; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(joined_->transport().Agree({.step = i, .samples = 1}).status());
    }
    return Repetition{.total = Between(begin, BenchClock::now()) / sizes_.agreements};
  }

  nlohmann::json Leave() override {
    joined_->session().Leave(absl::OkStatus());
    return nullptr;
  }

 private:
  explicit TransportBench(const BenchSizes& sizes) : sizes_(sizes) {}

  const BenchSizes sizes_;
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<float> values_;
  std::unique_ptr<JoinedRank> joined_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankBench>> MakeRankBench(const RankConfig& config) {
  if (config.bench == "step") return StepBench::Make(config);
  if (config.bench == "probe") return ProbeBench::Make(config);
  if (config.bench == "buffers") return BuffersBench::Make(config);
  if (config.bench == "broadcast" || config.bench == "agree") return TransportBench::Make(config);
  if (config.bench == "train") return MakeTrainBench(config);
  return absl::InvalidArgumentError(absl::StrCat("there is no bench '", config.bench, "'"));
}

}  // namespace lockstep
