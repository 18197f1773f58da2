#include "tests/sim/training.h"

#include <algorithm>
#include <span>

#include "common/base/check.h"
#include "common/base/prng.h"
#include "worker/combine/combine.h"
#include "worker/device/host_math.h"
#include "worker/optim/gradient_scale.h"

namespace lockstep::sim {
namespace {

constexpr int kSizes[] = {21, 7, 34, 1};

// A number that depends on all of these, alike everywhere.
std::uint64_t Mix(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  std::uint64_t mixed = a;
  for (const std::uint64_t each : {b, c, d}) mixed = Prng(mixed ^ (each * 0x2545f4914f6cdd1du)).Next();
  return mixed;
}

float UnitOf(std::uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24f; }

}  // namespace

const std::vector<std::string>& ParameterNames() {
  static const auto* const names =
      new std::vector<std::string>{"a.weight", "a.bias", "b.weight", "b.scale"};
  return *names;
}

std::unique_ptr<VectorModel> Training::NewModel() const {
  auto model = std::make_unique<VectorModel>();
  Prng prng(seed);
  for (std::size_t i = 0; i < std::size(kSizes); ++i) {
    std::vector<float> values(kSizes[i]);
    for (float& value : values) value = static_cast<float>(prng.Unit() - 0.5);
    model->AddParameter(ParameterNames()[i], std::move(values));
  }
  model->AddBuffer<float>("bn.running_mean", {0, 0, 0});
  model->AddBuffer<std::int64_t>("bn.num_batches_tracked", {0});
  model->AddBuffer<float>("local.queue", {0, 0});
  return model;
}

std::int64_t Training::SamplesOf(std::int64_t base, int rank, int world_size) const {
  const std::int64_t samples =
      static_cast<std::int64_t>(Mix(seed, base, rank, world_size) % 5) - 1;
  const std::int64_t least = base % world_size == rank ? 1 : 0;
  return std::max(samples, least);
}

std::int64_t Training::FirstOf(std::int64_t base, int rank, int world_size) const {
  std::int64_t first = base;
  for (int r = 0; r < rank; ++r) first += SamplesOf(base, r, world_size);
  return first;
}

std::vector<float> Training::GradientOf(std::int64_t base, int rank, int world_size, int parameter,
                                        std::span<const float> values) const {
  const std::int64_t first = FirstOf(base, rank, world_size);
  const std::int64_t samples = SamplesOf(base, rank, world_size);
  std::vector<float> gradient(values.size(), 0.0f);
  for (std::int64_t sample = first; sample < first + samples; ++sample) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float target = 2 * UnitOf(Mix(seed, sample, parameter, i)) - 1;
      gradient[i] += values[i] - target;
    }
  }
  if (samples > 0) {
    for (float& each : gradient) each /= static_cast<float>(samples);
  }
  return gradient;
}

std::vector<std::vector<float>> ParametersOf(VectorModel& model) {
  std::vector<std::vector<float>> all;
  for (const std::string& name : ParameterNames()) {
    const std::span<float> values = model.parameter(name);
    all.emplace_back(values.begin(), values.end());
  }
  return all;
}

SerialReference::SerialReference(const Training& training) : training_(training) {
  const std::unique_ptr<VectorModel> model = training.NewModel();
  manifest_ = *model->Describe();
  plan_ = *PlanShards(manifest_, 1);
  flat_.assign(plan_.flat_elements, 0.0f);
  for (const Placement& placement : plan_.placements) {
    std::ranges::copy(model->parameter(placement.name), flat_.begin() + placement.offset);
  }
  optimizer_ = *ShardOptimizer::Create(training_.optimizer, plan_.flat_elements);
}

SerialReference::SerialReference(const SerialReference& other)
    : training_(other.training_),
      manifest_(other.manifest_),
      plan_(other.plan_),
      flat_(other.flat_),
      samples_(other.samples_) {
  optimizer_ = *ShardOptimizer::Create(training_.optimizer, plan_.flat_elements);
  optimizer_->set_step(other.optimizer_->step());
  const std::vector<StateSlot> from = other.optimizer_->state();
  const std::vector<StateSlot> to = optimizer_->state();
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::ranges::copy(from[i].values, to[i].values.begin());
  }
}

std::vector<std::vector<float>> SerialReference::parameters() const {
  std::vector<std::vector<float>> all;
  for (const Placement& placement : plan_.placements) {
    const auto begin = flat_.begin() + placement.offset;
    all.emplace_back(begin, begin + placement.elements);
  }
  return all;
}

std::unique_ptr<SerialReference> SerialReference::Next(int world_size) const {
  std::unique_ptr<SerialReference> next(new SerialReference(*this));
  std::int64_t samples = 0;
  std::vector<float> weights;
  std::vector<std::vector<float>> gradients;
  for (int rank = 0; rank < world_size; ++rank) {
    const std::int64_t of_rank = training_.SamplesOf(samples_, rank, world_size);
    samples += of_rank;
    weights.push_back(static_cast<float>(of_rank));
    std::vector<float>& gradient = gradients.emplace_back(flat_.size(), 0.0f);
    for (std::size_t i = 0; i < plan_.placements.size(); ++i) {
      const Placement& placement = plan_.placements[i];
      std::ranges::copy(
          training_.GradientOf(samples_, rank, world_size, static_cast<int>(i),
                               std::span(flat_).subspan(placement.offset, placement.elements)),
          gradient.begin() + placement.offset);
    }
  }
  std::vector<float> sums(flat_.size());
  std::vector<const std::byte*> sources;
  for (const std::vector<float>& each : gradients) {
    sources.push_back(reinterpret_cast<const std::byte*>(each.data()));
  }
  WeightedSum(DType::kFloat32, sources, weights, plan_.flat_elements,
              [&](std::int64_t begin, std::span<const float> part) {
                std::ranges::copy(part, sums.begin() + begin);
              });
  double squared_norm = 0;
  if (training_.max_grad_norm != 0) {
    // Each rank adds up its own shard, and ranks' sums are added in their order.
    const ShardPlan shared = *PlanShards(manifest_, world_size);
    HostMath math;
    for (const Shard& shard : shared.shards) {
      const std::unique_ptr<SumOfSquares> sum = math.MakeSumOfSquares();
      LOCKSTEP_CHECK(sum->Add(std::span(sums).subspan(shard.begin, shard.elements())).ok());
      squared_norm += *sum->Sum();
    }
  }
  next->optimizer_->BeginStep(
      ScaleOf(squared_norm, samples, /*loss_scale=*/1, training_.max_grad_norm).factor);
  next->optimizer_->Update(0, sums, DType::kFloat32,
                           reinterpret_cast<std::byte*>(next->flat_.data()));
  LOCKSTEP_CHECK(next->optimizer_->EndStep().ok());
  next->samples_ = samples_ + samples;
  return next;
}

}  // namespace lockstep::sim
