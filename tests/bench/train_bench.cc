#include "tests/bench/train_bench.h"

#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "tests/bench/joined_rank.h"
#include "tests/bench/train_work.h"
#include "torch/torch.h"
#include "worker/torch/guard.h"
#include "worker/trainer/mnist.h"
#include "worker/trainer/models.h"

namespace lockstep {
namespace {

// Equal seeds and equal order of construction give the peers' initial values.
constexpr std::uint64_t kSeed = 1;
// Mean and standard deviation of MNIST's pixels, of 0 to 1.
constexpr double kMean = 0.1307;
constexpr double kDeviation = 0.3081;

// Adds up what lies between its calls.
class Laps {
 public:
  Laps() : begin_(BenchClock::now()), last_(begin_) {}

  void End(const std::string& part) {
    const auto now = BenchClock::now();
    parts_[part] += Nanoseconds(now - last_);
    last_ = now;
  }

  Repetition PerStep(std::int64_t steps) const {
    Repetition repetition = {.total = Nanoseconds(last_ - begin_) / steps};
    for (const auto& [part, nanos] : parts_) repetition.parts[part] = nanos / steps;
    return repetition;
  }

 private:
  static Nanos Nanoseconds(BenchClock::duration duration) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  }

  const BenchClock::time_point begin_;
  BenchClock::time_point last_;
  std::map<std::string, Nanos> parts_;
};

class TrainBench final : public RankBench {
 public:
  static absl::StatusOr<std::unique_ptr<RankBench>> Make(const RankConfig& config) {
    LOCKSTEP_ASSIGN_OR_RETURN(const LabeledImages data, LoadMnist(config.data, MnistPart::kTrain));
    std::unique_ptr<TrainBench> bench(new TrainBench(config, data));
    LOCKSTEP_ASSIGN_OR_RETURN(bench->joined_, JoinedRank::Join(config, *bench->model_));
    return bench;
  }

  absl::StatusOr<Repetition> Run(const std::string& name) override {
    Laps laps;
    for (std::int64_t i = 0; i < config_.sizes.train_steps; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(GuardTorch("training", [&] { return TakeStep(laps); }));
    }
    return laps.PerStep(config_.sizes.train_steps);
  }

  nlohmann::json Leave() override {
    joined_->session().Leave(absl::OkStatus());
    TrainAccount account = {.system = "lockstep", .rank = config_.rank, .losses = losses_};
    for (const at::Tensor& parameter : model_->parameters()) {
      account.parameters += parameter.numel();
    }
    account.buffers = static_cast<std::int64_t>(model_->buffers().size());
    return ToJson(account);
  }

 private:
  TrainBench(const RankConfig& config, const LabeledImages& data)
      : config_(config),
        images_(torch::tensor(data.pixels, at::kByte).view({-1, 1, kImageSide, kImageSide})),
        labels_(torch::tensor(data.labels, at::kByte).to(at::kLong)) {
    torch::manual_seed(kSeed);
    model_ = ResNet();
  }

  absl::Status TakeStep(Laps& laps) {
    Session& session = joined_->session();
    const std::int64_t batch = config_.sizes.train_batch;
    const std::int64_t begin = BatchBegin(session.step(), config_.rank, config_.ranks, batch,
                                          labels_.size(0));
    const at::Tensor images = images_.narrow(0, begin, batch)
                                  .to(at::kFloat, /*non_blocking=*/false, /*copy=*/true,
                                      at::MemoryFormat::ChannelsLast)
                                  .div_(255)
                                  .sub_(kMean)
                                  .div_(kDeviation);
    const at::Tensor labels = labels_.narrow(0, begin, batch);
    laps.End("1 batch");
    LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
    laps.End("2 buffers");
    const at::Tensor loss = at::cross_entropy_loss(model_->forward(images), labels);
    laps.End("3 forward");
    const StepOptions step = {.samples = batch};
    LOCKSTEP_RETURN_IF_ERROR(session.BeforeBackward(step));
    loss.backward();
    losses_.push_back(loss.item<double>());
    laps.End("4 backward");
    LOCKSTEP_RETURN_IF_ERROR(session.Step(step));
    laps.End("5 step");
    return absl::OkStatus();
  }

  const RankConfig config_;
  const at::Tensor images_;  // uint8[n, 1, 28, 28]
  const at::Tensor labels_;  // int64[n]
  torch::nn::Sequential model_ = nullptr;
  std::unique_ptr<JoinedRank> joined_;
  std::vector<double> losses_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankBench>> MakeTrainBench(const RankConfig& config) {
  return TrainBench::Make(config);
}

}  // namespace lockstep
