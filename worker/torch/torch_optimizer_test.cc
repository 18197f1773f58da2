// LibTorch's fused optimizers beside those of worker/optim, which tests/parity trains
// beside torch::optim.
#include "worker/torch/torch_optimizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/headeronly/util/BFloat16.h"
#include "torch/headeronly/util/Half.h"
#include "worker/torch/fake_device.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kElements = 1003;
constexpr int kSteps = 20;

std::vector<float> Draw(std::uint64_t seed, std::int64_t elements = kElements) {
  Prng prng(seed);
  std::vector<float> values(elements);
  for (float& value : values) value = static_cast<float>(prng.Unit() - 0.5);
  return values;
}

using Made = absl::StatusOr<std::unique_ptr<ShardOptimizer>>;

class TorchOptimizerTest : public testing::TestWithParam<c10::Device> {
 protected:
  Made MakeOurs(const OptimizerConfig& config, std::vector<GroupRange> ranges,
                std::int64_t short_begin) {
    absl::StatusOr<std::shared_ptr<TorchDevice>> device = TorchDevice::Create(GetParam());
    if (!device.ok()) return device.status();
    return MakeTorchOptimizer(*std::move(device), config, std::move(ranges), short_begin);
  }
  template <typename T>
  void TrainShortParameters();
};
INSTANTIATE_TEST_SUITE_P(Devices, TorchOptimizerTest,
                         testing::Values(c10::Device(c10::kCPU), FakeDevice()),
                         [](const auto& info) { return info.param.is_cpu() ? "Cpu" : "Fake"; });

// Relative 1e-5, and 1e-7 where it is near 0: the bound of tests/parity.
void ExpectClose(const std::vector<float>& ours, const std::vector<float>& theirs,
                 const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_NEAR(ours[i], theirs[i], 1e-7 + 1e-5 * std::fabs(theirs[i])) << what << " at " << i;
  }
}

// One step, in parts that end at `cuts`.
void StepInParts(ShardOptimizer& optimizer, const std::vector<float>& gradients, float scale,
                 std::vector<float>& params, const std::vector<std::int64_t>& cuts) {
  optimizer.BeginStep(scale);
  std::int64_t begin = 0;
  for (const std::int64_t end : cuts) {
    optimizer.Update(begin, std::span(gradients).subspan(begin, end - begin), DType::kFloat32,
                     reinterpret_cast<std::byte*>(params.data() + begin));
    begin = end;
  }
  LOCKSTEP_EXPECT_OK(optimizer.EndStep());
}

const std::vector<GroupRange> kWhole = {{0, kElements, kNoGroup}};

const std::vector<OptimizerConfig> kConfigs = {
    Sgd{.lr = 0.1},
    Sgd{.lr = 0.1, .weight_decay = 0.01},
    Sgd{.lr = 0.1, .momentum = 0.9},
    Sgd{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
    Sgd{.lr = 0.1, .momentum = 0.8, .weight_decay = 0.01, .nesterov = true},
    Adam{.lr = 0.01},
    Adam{.lr = 0.01, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-4, .weight_decay = 0.1},
    AdamW{.lr = 0.01},
    AdamW{.lr = 0.01, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-4, .weight_decay = 0.3},
    Adagrad{.lr = 0.1},
    Adagrad{.lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.02, .initial_accumulator_value = 0.5,
            .eps = 1e-4},
};

TEST_P(TorchOptimizerTest, EveryRuleStepsAsTheHostsDoes) {
  for (const OptimizerConfig& config : kConfigs) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ours, MakeOurs(config, kWhole, kElements));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto theirs, ShardOptimizer::Create(config, kElements));
    std::vector<float> our_params = Draw(1);
    std::vector<float> their_params = our_params;
    for (int step = 0; step < kSteps; ++step) {
      if (step == 7) {
        LOCKSTEP_ASSERT_OK(ours->SetLearningRate(0.03));
        LOCKSTEP_ASSERT_OK(theirs->SetLearningRate(0.03));
        EXPECT_EQ(ours->learning_rate(), 0.03);
      }
      const std::vector<float> gradients = Draw(100 + step);
      // As averaging and clipping scale it.
      const float scale = step % 3 == 0 ? 1.0f : 0.37f;
      LOCKSTEP_ASSERT_OK(ours->Step(gradients, scale, our_params));
      LOCKSTEP_ASSERT_OK(ours->EndStep());
      LOCKSTEP_ASSERT_OK(theirs->Step(gradients, scale, their_params));
      EXPECT_EQ(gradients, Draw(100 + step)) << "sums were written to";
    }
    ExpectClose(our_params, their_params, Describe(config));
    EXPECT_NE(our_params, Draw(1));
    EXPECT_EQ(ours->state_bytes(), theirs->state_bytes()) << Describe(config);
    EXPECT_EQ(ours->elements(), kElements);
  }
}

TEST_P(TorchOptimizerTest, AStepMayComeInParts) {
  for (const OptimizerConfig& config : kConfigs) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ours, MakeOurs(config, kWhole, kElements));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto theirs, ShardOptimizer::Create(config, kElements));
    std::vector<float> our_params = Draw(1);
    std::vector<float> their_params = our_params;
    for (int step = 0; step < 5; ++step) {
      const std::vector<float> gradients = Draw(100 + step);
      StepInParts(*ours, gradients, 0.5f, our_params, {1, 1, 18, 530, kElements});
      LOCKSTEP_ASSERT_OK(theirs->Step(gradients, 0.5f, their_params));
    }
    ExpectClose(our_params, their_params, Describe(config));
  }
}

TEST_P(TorchOptimizerTest, AStepOfSeveralTilesIsAsOne) {
  const std::int64_t elements = kTileElements + 37;
  const std::vector<GroupRange> ranges = {{0, elements, kNoGroup}};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ours, MakeOurs(Adam{.lr = 0.1}, ranges, elements));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto theirs,
                                ShardOptimizer::Create(Adam{.lr = 0.1}, elements));
  std::vector<float> our_params = Draw(1, elements);
  std::vector<float> their_params = our_params;
  for (int step = 0; step < 2; ++step) {
    const std::vector<float> gradients = Draw(100 + step, elements);
    LOCKSTEP_ASSERT_OK(ours->Step(gradients, 0.5f, our_params));
    LOCKSTEP_ASSERT_OK(theirs->Step(gradients, 0.5f, their_params));
  }
  ExpectClose(our_params, their_params, "two tiles");
}

TEST_P(TorchOptimizerTest, GroupsHaveTheirSettings) {
  const AdamW config = {.lr = 0.01,
                        .weight_decay = 0.1,
                        .groups = {{.pattern = "a", .weight_decay = 0},
                                   {.pattern = "b", .lr_scale = 10},
                                   {.pattern = "c", .lr_scale = 0}}};
  const std::vector<GroupRange> ranges = {
      {0, 100, 1}, {100, 100, 0}, {100, 417, kNoGroup}, {417, 600, 0}, {600, kElements, 2}};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto ours, MakeOurs(config, ranges, kElements));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto theirs,
                                ShardOptimizer::Create(config, ranges, kElements));
  std::vector<float> our_params = Draw(1);
  std::vector<float> their_params = our_params;
  for (int step = 0; step < kSteps; ++step) {
    if (step == 9) {
      LOCKSTEP_ASSERT_OK(ours->SetLearningRate(0.002));
      LOCKSTEP_ASSERT_OK(theirs->SetLearningRate(0.002));
    }
    const std::vector<float> gradients = Draw(100 + step);
    StepInParts(*ours, gradients, 0.5f, our_params, {50, 500, kElements});
    LOCKSTEP_ASSERT_OK(theirs->Step(gradients, 0.5f, their_params));
  }
  ExpectClose(our_params, their_params, "groups");
  EXPECT_EQ(our_params.back(), Draw(1).back());
}

template <typename T>
struct ShortOf;
template <>
struct ShortOf<c10::BFloat16> {
  static constexpr DType dtype = DType::kBfloat16;
};
template <>
struct ShortOf<c10::Half> {
  static constexpr DType dtype = DType::kFloat16;
};

// A shard of kFloats elements of float32 and kShorts of a short type behind them.
constexpr std::int64_t kFloats = 33;
constexpr std::int64_t kShorts = 500;

template <typename T>
struct Replica {
  std::unique_ptr<ShardOptimizer> optimizer;
  std::vector<float> floats = Draw(1, kFloats);
  std::vector<T> shorts;

  explicit Replica(std::unique_ptr<ShardOptimizer> made) : optimizer(std::move(made)) {
    for (const float value : Draw(2, kShorts)) shorts.push_back(T(value));
  }

  void Step(const std::vector<float>& gradients) {
    const std::span<const float> all = gradients;
    optimizer->BeginStep(0.5f);
    optimizer->Update(0, all.first(kFloats), DType::kFloat32,
                      reinterpret_cast<std::byte*>(floats.data()));
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 77}, {77, kShorts}}) {
      optimizer->Update(kFloats + begin, all.subspan(kFloats + begin, end - begin),
                        ShortOf<T>::dtype, reinterpret_cast<std::byte*>(shorts.data() + begin));
    }
    LOCKSTEP_EXPECT_OK(optimizer->EndStep());
  }

  // As integers that neighbours of one sign differ by 1 in.
  int Bits(std::int64_t i) const { return std::bit_cast<std::uint16_t>(shorts[i]); }
};

template <typename T>
void TorchOptimizerTest::TrainShortParameters() {
  // Small steps, most of which are lost without masters.
  const Adam config = {.lr = 2e-5};
  const std::vector<GroupRange> ranges = {{0, kFloats + kShorts, kNoGroup}};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto made, MakeOurs(config, ranges, kFloats));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto expected, ShardOptimizer::Create(config, ranges, kFloats));
  Replica<T> ours(std::move(made));
  Replica<T> theirs(std::move(expected));
  const Replica<T> start(nullptr);
  std::vector<float> gradients = Draw(3, kFloats + kShorts);
  for (int step = 0; step < 200; ++step) {
    if (step == 100) {
      // Training code writes some.
      for (std::int64_t i = 0; i < kShorts; i += 3) {
        ours.shorts[i] = theirs.shorts[i] = T(0.25f);
      }
    }
    ours.Step(gradients);
    theirs.Step(gradients);
  }
  ExpectClose(ours.floats, theirs.floats, "floats");
  // Masters agree within 1e-5, so that a rounding of them can fall to the other side.
  int apart = 0;
  int moved = 0;
  for (std::int64_t i = 0; i < kShorts; ++i) {
    EXPECT_LE(std::abs(ours.Bits(i) - theirs.Bits(i)), 1) << i;
    apart += ours.Bits(i) != theirs.Bits(i);
    const float from = i % 3 == 0 ? 0.25f : static_cast<float>(start.shorts[i]);
    moved += static_cast<float>(ours.shorts[i]) != from;
  }
  EXPECT_LE(apart, kShorts / 50);
  EXPECT_GE(moved, kShorts / 2);
  EXPECT_EQ(ours.optimizer->state_bytes(), theirs.optimizer->state_bytes());
}

TEST_P(TorchOptimizerTest, ShortParametersAreSteppedByTheirMasters) {
  TrainShortParameters<c10::BFloat16>();
  TrainShortParameters<c10::Half>();
}

TEST_P(TorchOptimizerTest, AShardMayBeEmpty) {
  for (const OptimizerConfig& config : kConfigs) {
    for (const std::vector<GroupRange>& ranges :
         {std::vector<GroupRange>{}, std::vector<GroupRange>{{0, 0, kNoGroup}}}) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto optimizer, MakeOurs(config, ranges, 0));
      std::vector<float> none;
      LOCKSTEP_EXPECT_OK(optimizer->Step(none, 1, none));
      LOCKSTEP_EXPECT_OK(optimizer->EndStep());
      EXPECT_EQ(optimizer->state_bytes(), 0);
    }
  }
}

TEST_P(TorchOptimizerTest, WrongSettingsAndRangesAreRefusedAsTheHostsAre) {
  EXPECT_THAT(MakeOurs(Adam{.eps = -1}, kWhole, kElements).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("eps")));
  EXPECT_THAT(MakeOurs(Adam{}, {{1, 2, kNoGroup}}, 2).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("starts at 0")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto optimizer, MakeOurs(Adam{}, kWhole, kElements));
  EXPECT_THAT(optimizer->SetLearningRate(-1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(optimizer->learning_rate(), 1e-3);
}

TEST_P(TorchOptimizerTest, WhatLibTorchThrowsIsTheErrorOfItsStep) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto optimizer, MakeOurs(Adam{}, kWhole, kElements));
  std::vector<float> params = Draw(1);
  const std::vector<float> gradients = Draw(2);
  // There are no masters for a short type here.
  optimizer->BeginStep(1);
  optimizer->Update(0, std::span(gradients).first(16), DType::kFloat16,
                    reinterpret_cast<std::byte*>(params.data()));
  optimizer->Update(16, std::span(gradients).subspan(16), DType::kFloat32,
                    reinterpret_cast<std::byte*>(params.data() + 16));
  EXPECT_THAT(optimizer->EndStep(), StatusIs(absl::StatusCode::kInternal,
                                             HasSubstr("updating parameters failed")));
  EXPECT_EQ(params, Draw(1)) << "nothing is updated after an error";
  LOCKSTEP_EXPECT_OK(optimizer->Step(gradients, 1, params));
  LOCKSTEP_EXPECT_OK(optimizer->EndStep());
}

}  // namespace
}  // namespace lockstep
