#include "tests/chaos/serial_training.h"

#include <cstddef>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "c10/core/Device.h"
#include "common/base/status_macros.h"
#include "common/manifest/dtype.h"
#include "worker/combine/combine.h"
#include "worker/optim/gradient_scale.h"
#include "worker/optim/shard_optimizer.h"
#include "worker/torch/guard.h"
#include "worker/trainer/batch.h"
#include "worker/trainer/classifier.h"
#include "worker/trainer/flags.h"
#include "worker/trainer/mnist.h"
#include "worker/trainer/sampler.h"
#include "worker/trainer/tensor_digest.h"
#include "worker/trainer/training.h"

namespace lockstep {

class SerialTraining::Impl {
 public:
  Impl(const TrainingOptions& options, LabeledImages data, std::unique_ptr<Classifier> classifier)
      : data_(std::move(data)),
        classifier_(std::move(classifier)),
        sampler_(data_.size(), options.batch, options.seed),
        parameters_(classifier_->Tensors()->Parameters()) {}

  absl::Status MakeOptimizer(const OptimizerConfig& config) {
    std::int64_t elements = 0;
    for (const NamedTensor& parameter : parameters_) elements += parameter.tensor.numel();
    LOCKSTEP_ASSIGN_OR_RETURN(optimizer_, ShardOptimizer::Create(config, elements));
    return absl::OkStatus();
  }

  absl::Status Step(int world_size) {
    std::vector<float> weights;
    std::vector<std::vector<at::Tensor>> gradients;  // by rank, by parameter
    std::int64_t samples = 0;
    for (int rank = 0; rank < world_size; ++rank) {
      const std::span<const std::int64_t> numbers = sampler_.Batch(samples_, rank);
      weights.push_back(static_cast<float>(numbers.size()));
      samples += static_cast<std::int64_t>(numbers.size());
      gradients.push_back(GradientsOf(numbers));
    }
    optimizer_->BeginStep(ScaleOf(/*squared_norm=*/0, samples, /*loss_scale=*/1, /*max_norm=*/0)
                              .factor);
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& parameter = parameters_[i].tensor;
      std::vector<const std::byte*> sources;
      for (const std::vector<at::Tensor>& of_rank : gradients) {
        sources.push_back(of_rank.empty()
                              ? nullptr
                              : static_cast<const std::byte*>(of_rank[i].const_data_ptr()));
      }
      auto* const values = static_cast<std::byte*>(parameter.mutable_data_ptr());
      WeightedSum(DType::kFloat32, sources, weights, parameter.numel(),
                  [&](std::int64_t begin, std::span<const float> sums) {
                    optimizer_->Update(offset + begin, sums, DType::kFloat32,
                                       values + begin * static_cast<std::int64_t>(sizeof(float)));
                  });
      offset += parameter.numel();
    }
    LOCKSTEP_RETURN_IF_ERROR(optimizer_->EndStep());
    ++step_;
    samples_ += samples;
    return absl::OkStatus();
  }

  std::int64_t step() const { return step_; }
  std::int64_t samples() const { return samples_; }
  std::string ParameterDigest() const { return DigestOf(parameters_); }

 private:
  // By parameter; none: there is no data left.
  std::vector<at::Tensor> GradientsOf(std::span<const std::int64_t> numbers) {
    if (numbers.empty()) return {};
    const Batch batch = MakeBatch(data_, numbers, c10::kCPU);
    at::cross_entropy_loss(classifier_->Forward(batch.images), batch.labels).backward();
    std::vector<at::Tensor> gradients;
    for (NamedTensor& parameter : parameters_) {
      gradients.push_back(parameter.tensor.grad().contiguous());
      parameter.tensor.mutable_grad().reset();
    }
    return gradients;
  }

  const LabeledImages data_;
  const std::unique_ptr<Classifier> classifier_;
  Sampler sampler_;
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<ShardOptimizer> optimizer_;
  std::int64_t step_ = 0;
  std::int64_t samples_ = 0;
};

absl::StatusOr<std::unique_ptr<SerialTraining>> SerialTraining::Create(
    std::vector<std::string> flags) {
  flags.insert(flags.begin(), "serial training");
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  const auto parsed = ParseFlags(static_cast<int>(argv.size()), argv.data());
  if (!std::holds_alternative<WorkerFlags>(parsed)) {
    return absl::InvalidArgumentError("the trainer refused the flags, as it says above");
  }
  const TrainingOptions& options = std::get<WorkerFlags>(parsed).training;
  LOCKSTEP_ASSIGN_OR_RETURN(LabeledImages data, LoadMnist(options.data, MnistPart::kTrain));
  at::set_num_threads(1);
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Classifier> classifier,
                            MakeClassifier(options.model, options.seed));
  auto impl = std::make_unique<Impl>(options, std::move(data), std::move(classifier));
  LOCKSTEP_RETURN_IF_ERROR(impl->MakeOptimizer(options.optimizer));
  return std::unique_ptr<SerialTraining>(new SerialTraining(std::move(impl)));
}

SerialTraining::SerialTraining(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SerialTraining::~SerialTraining() = default;

absl::Status SerialTraining::Step(int world_size) {
  return GuardTorch("training serially", [&] { return impl_->Step(world_size); });
}

std::int64_t SerialTraining::step() const { return impl_->step(); }
std::int64_t SerialTraining::samples() const { return impl_->samples(); }
std::string SerialTraining::ParameterDigest() const { return impl_->ParameterDigest(); }

}  // namespace lockstep
