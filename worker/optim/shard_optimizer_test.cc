#include "worker/optim/shard_optimizer.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr int kSteps = 7;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<float> RandomValues(Prng& prng, std::size_t n) {
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(prng.Unit() * 2 - 1);
  return values;
}

std::vector<OptimizerConfig> SomeConfigs() {
  return {
      Sgd{.lr = 0.1},
      Sgd{.lr = 0.1, .weight_decay = 0.01},
      Sgd{.lr = 0.1, .momentum = 0.9},
      Sgd{.lr = 0.1, .momentum = 0.9, .dampening = 0.3},
      Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
      Adam{},
      Adam{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1},
      AdamW{},
      AdamW{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0},
      Adagrad{},
      Adagrad{.lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.01,
              .initial_accumulator_value = 0.5, .eps = 1e-6},
  };
}

// One element after another, as the papers and torch's documentation write it.
// In double it shows the meaning; in float also the order of operations.
template <typename Real>
class NaiveTwin {
 public:
  NaiveTwin(const OptimizerConfig& config, const std::vector<float>& start)
      : config_(config), param_(start.begin(), start.end()), first_(start.size()),
        second_(start.size()) {
    if (const auto* c = std::get_if<Adagrad>(&config)) {
      first_.assign(start.size(), Real(c->initial_accumulator_value));
    }
  }

  void SetLearningRate(double lr) {
    std::visit([&](auto& c) { c.lr = lr; }, config_);
  }
  void Step(const std::vector<float>& grad, float grad_scale) {
    ++step_;
    for (std::size_t i = 0; i < param_.size(); ++i) {
      const Real g = static_cast<Real>(grad[i]) * grad_scale;
      std::visit([&](const auto& c) { Update(c, g, param_[i], first_[i], second_[i]); },
                 config_);
    }
  }
  const std::vector<Real>& param() const { return param_; }

 private:
  void Update(const Sgd& c, Real d, Real& p, Real& buffer, Real&) {
    if (c.weight_decay != 0) d = d + Real(c.weight_decay) * p;
    if (c.momentum != 0) {
      buffer = step_ == 1 ? d : buffer * Real(c.momentum) + Real(1 - c.dampening) * d;
      d = c.nesterov ? d + Real(c.momentum) * buffer : buffer;
    }
    p = p - Real(c.lr) * d;
  }
  void Update(const Adam& c, Real d, Real& p, Real& m, Real& v) {
    if (c.weight_decay != 0) d = d + Real(c.weight_decay) * p;
    Moments(c, d, p, m, v);
  }
  void Update(const AdamW& c, Real d, Real& p, Real& m, Real& v) {
    p = p * Real(1 - c.lr * c.weight_decay);
    Moments(c, d, p, m, v);
  }
  void Update(const Adagrad& c, Real d, Real& p, Real& sum, Real&) {
    if (c.weight_decay != 0) d = d + Real(c.weight_decay) * p;
    sum = sum + d * d;
    p = p - Real(c.lr / (1 + (step_ - 1) * c.lr_decay)) * d / (std::sqrt(sum) + Real(c.eps));
  }
  template <typename Config>
  void Moments(const Config& c, Real d, Real& p, Real& m, Real& v) {
    m = m * Real(c.beta1) + Real(1 - c.beta1) * d;
    v = v * Real(c.beta2) + Real(1 - c.beta2) * d * d;
    const Real denominator =
        std::sqrt(v) / Real(std::sqrt(1 - std::pow(c.beta2, step_))) + Real(c.eps);
    p = p - Real(c.lr / (1 - std::pow(c.beta1, step_))) * m / denominator;
  }

  OptimizerConfig config_;
  double step_ = 0;
  std::vector<Real> param_, first_, second_;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(ShardOptimizer, EqualsTheNaiveFloatTwinBitForBit) {
  for (const OptimizerConfig& config : SomeConfigs()) {
    SCOPED_TRACE(Describe(config));
    Prng prng(1);
    std::vector<float> param = RandomValues(prng, 203);
    NaiveTwin<float> twin(config, param);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto optimizer, ShardOptimizer::Create(config, 203));
    for (int step = 1; step <= kSteps; ++step) {
      if (step % 3 == 0) {
        const double lr = optimizer->learning_rate() * 0.3;
        LOCKSTEP_ASSERT_OK(optimizer->SetLearningRate(lr));
        EXPECT_EQ(optimizer->learning_rate(), lr);
        twin.SetLearningRate(lr);
      }
      const std::vector<float> grad = RandomValues(prng, 203);
      LOCKSTEP_ASSERT_OK(optimizer->Step(grad, 0.25f, param));
      twin.Step(grad, 0.25f);
      ASSERT_TRUE(SameBits(param, twin.param())) << "step " << step;
    }
  }
}

TEST(ShardOptimizer, IsNearToTheNaiveDoubleTwin) {
  for (const OptimizerConfig& config : SomeConfigs()) {
    SCOPED_TRACE(Describe(config));
    Prng prng(2);
    std::vector<float> param = RandomValues(prng, 100);
    NaiveTwin<double> twin(config, param);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto optimizer, ShardOptimizer::Create(config, 100));
    for (int step = 1; step <= kSteps; ++step) {
      const std::vector<float> grad = RandomValues(prng, 100);
      LOCKSTEP_ASSERT_OK(optimizer->Step(grad, 1, param));
      twin.Step(grad, 1);
    }
    for (std::size_t i = 0; i < param.size(); ++i) {
      EXPECT_NEAR(param[i], twin.param()[i], 1e-5 + 1e-5 * std::abs(param[i])) << i;
    }
  }
}

TEST(ShardOptimizer, GivesTheSameBitsForEverySplitIntoShards) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    for (const OptimizerConfig& config : SomeConfigs()) {
      Prng prng(seed);
      const std::int64_t n = 16 * prng.Between(1, 40);
      std::vector<float> whole = RandomValues(prng, n);
      std::vector<float> split = whole;
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto one, ShardOptimizer::Create(config, n));
      struct Part {
        std::int64_t begin;
        std::unique_ptr<ShardOptimizer> optimizer;
      };
      std::vector<Part> parts;
      for (std::int64_t begin = 0; begin < n;) {
        const std::int64_t size = 16 * prng.Between(0, (n - begin) / 16);
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto optimizer, ShardOptimizer::Create(config, size));
        parts.push_back({begin, std::move(optimizer)});
        begin += size;
      }
      for (int step = 1; step <= kSteps; ++step) {
        const std::vector<float> grad = RandomValues(prng, n);
        LOCKSTEP_ASSERT_OK(one->Step(grad, 0.5f, whole));
        for (Part& part : parts) {
          const std::int64_t size = part.optimizer->elements();
          LOCKSTEP_ASSERT_OK(part.optimizer->Step(std::span(grad).subspan(part.begin, size), 0.5f,
                                                  std::span(split).subspan(part.begin, size)));
        }
      }
      ASSERT_TRUE(SameBits(whole, split)) << "seed " << seed << " " << Describe(config);
    }
  }
}

// Each range goes as if it were a shard of its own with the group's settings.
TEST(ShardOptimizer, StepsEachRangeWithTheSettingsOfItsGroup) {
  for (OptimizerConfig config : SomeConfigs()) {
    SCOPED_TRACE(Describe(config));
    OptimizerConfig of_group = config;
    std::visit(
        [](auto& c) {
          c.lr *= 0.5;
          c.weight_decay = 0.25;
        },
        of_group);
    std::visit(
        [](auto& c) {
          c.groups = {{.pattern = "unused"},
                      {.pattern = "x", .lr_scale = 0.5, .weight_decay = 0.25}};
        },
        config);
    const std::vector<GroupRange> ranges = {
        {0, 5, 1}, {5, 21, kNoGroup}, {21, 21, 0}, {21, 40, 1}};
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto grouped, ShardOptimizer::Create(config, ranges, /*short_begin=*/1000));
    EXPECT_EQ(grouped->elements(), 40);
    std::vector<std::unique_ptr<ShardOptimizer>> parts;
    for (const GroupRange& range : ranges) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          auto part, ShardOptimizer::Create(range.group == 1 ? of_group : config,
                                            range.end - range.begin));
      parts.push_back(std::move(part));
    }
    Prng prng(5);
    std::vector<float> param = RandomValues(prng, 40);
    std::vector<float> expected = param;
    for (int step = 1; step <= kSteps; ++step) {
      if (step == 3) {  // groups follow
        LOCKSTEP_ASSERT_OK(grouped->SetLearningRate(0.25));
        for (std::size_t i = 0; i < ranges.size(); ++i) {
          LOCKSTEP_ASSERT_OK(parts[i]->SetLearningRate(ranges[i].group == 1 ? 0.125 : 0.25));
        }
      }
      const std::vector<float> grad = RandomValues(prng, 40);
      LOCKSTEP_ASSERT_OK(grouped->Step(grad, 0.5f, param));
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const std::int64_t begin = ranges[i].begin;
        const std::int64_t size = ranges[i].end - begin;
        LOCKSTEP_ASSERT_OK(parts[i]->Step(std::span(grad).subspan(begin, size), 0.5f,
                                          std::span(expected).subspan(begin, size)));
      }
      ASSERT_TRUE(SameBits(param, expected)) << "step " << step;
    }
  }
}

TEST(ShardOptimizer, RefusesRangesThatAreNoShard) {
  const OptimizerConfig config = Sgd{.groups = {{.pattern = "x"}}};
  for (const std::vector<GroupRange>& ranges : std::vector<std::vector<GroupRange>>{
           {{1, 2, 0}}, {{0, 2, 0}, {3, 4, 0}}, {{0, 2, 0}, {1, 4, 0}}, {{0, -1, 0}},
           {{0, 2, 1}}, {{0, 2, -2}}}) {
    EXPECT_THAT(ShardOptimizer::Create(config, ranges, /*short_begin=*/1000),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected is one")));
  }
  LOCKSTEP_EXPECT_OK(ShardOptimizer::Create(config, std::vector<GroupRange>{}, 0).status());
}

TEST(ShardOptimizer, StartsTheMomentumWithTheUndampenedGradient) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      auto optimizer,
      ShardOptimizer::Create(Sgd{.lr = 1, .momentum = 0.5, .dampening = 0.75}, 1));
  const std::vector<float> grad = {8};
  std::vector<float> param = {0};
  LOCKSTEP_ASSERT_OK(optimizer->Step(grad, 1, param));
  EXPECT_EQ(param[0], -8);  // not -2
  LOCKSTEP_ASSERT_OK(optimizer->Step(grad, 1, param));
  EXPECT_EQ(param[0], -8 - (8 * 0.5 + 8 * 0.25));
}

TEST(ShardOptimizer, HoldsStateForItsShardOnly) {
  const auto state_bytes = [](const OptimizerConfig& config) {
    return (*ShardOptimizer::Create(config, 100))->state_bytes();
  };
  EXPECT_EQ(state_bytes(Sgd{}), 0);
  EXPECT_EQ(state_bytes(Sgd{.momentum = 0.9}), 400);
  EXPECT_EQ(state_bytes(Adam{}), 800);
  EXPECT_EQ(state_bytes(AdamW{}), 800);
  EXPECT_EQ(state_bytes(Adagrad{}), 400);
}

TEST(ShardOptimizer, RefusesOtherSizesAndWritesNothing) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto optimizer, ShardOptimizer::Create(AdamW{}, 3));
  const std::vector<float> grad = {1, 1, 1, 1};
  std::vector<float> param = {5, 5, 5};
  EXPECT_THAT(optimizer->Step(grad, 1, param),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("this shard has 3")));
  EXPECT_THAT(param, testing::Each(5));
}

TEST(ShardOptimizer, RefusesALearningRateThatIsNoneAndKeepsItsOwn) {
  for (const OptimizerConfig& config : SomeConfigs()) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto optimizer, ShardOptimizer::Create(config, 1));
    const double before = optimizer->learning_rate();
    EXPECT_EQ(before, std::visit([](const auto& c) { return c.lr; }, config));
    for (const double lr : {-0.1, std::nan(""), kInfinity}) {
      EXPECT_THAT(optimizer->SetLearningRate(lr),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lr is ")));
      EXPECT_EQ(optimizer->learning_rate(), before);
    }
    LOCKSTEP_EXPECT_OK(optimizer->SetLearningRate(0));
  }
}

template <typename T>
std::byte* BytesOf(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// A shard of 40 floats and 100 short parameters against a shard of 140 floats.
template <typename T>
void ExpectMastersAreFloats(DType dtype) {
  for (const OptimizerConfig& config : SomeConfigs()) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        auto mixed, ShardOptimizer::Create(config, std::vector<GroupRange>{{0, 140}}, 40));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto floats, ShardOptimizer::Create(config, 140));
    EXPECT_EQ(mixed->state_bytes(), floats->state_bytes() + 100 * 4) << Describe(config);
    Prng prng(3);
    std::vector<float> expected(140);
    std::vector<float> params(40);
    std::vector<T> shorts(100);
    for (int i = 0; i < 140; ++i) {
      expected[i] = static_cast<float>(T(static_cast<float>(prng.Unit() - 0.5)));
      (i < 40 ? params[i] : expected[i]) = expected[i];
      if (i >= 40) shorts[i - 40] = T(expected[i]);
    }
    std::vector<float> grad(140);
    for (int step = 0; step < 20; ++step) {
      for (float& g : grad) g = static_cast<float>(prng.Unit() - 0.5);
      LOCKSTEP_ASSERT_OK(floats->Step(grad, 0.5f, expected));
      mixed->BeginStep(0.5f);
      mixed->Update(0, std::span(grad).first(40), DType::kFloat32, BytesOf(params));
      // In two parts, neither of which is whole lines.
      mixed->Update(40, std::span(grad).subspan(40, 37), dtype, BytesOf(shorts));
      mixed->Update(77, std::span(grad).subspan(77), dtype, BytesOf(shorts) + 37 * sizeof(T));
      for (int i = 0; i < 140; ++i) {
        const float held = i < 40 ? params[i] : static_cast<float>(shorts[i - 40]);
        ASSERT_EQ(held, i < 40 ? expected[i] : static_cast<float>(T(expected[i])))
            << Describe(config) << " step " << step << " element " << i;
      }
    }
  }
}

TEST(ShardOptimizer, StepsShortParametersOnMastersInFloat) {
  ExpectMastersAreFloats<c10::BFloat16>(DType::kBfloat16);
  ExpectMastersAreFloats<c10::Half>(DType::kFloat16);
}

TEST(ShardOptimizer, AShortParameterThatWasWrittenByOthersCounts) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      auto optimizer, ShardOptimizer::Create(Sgd{.lr = 0x1p-10}, std::vector<GroupRange>{{0, 2}}, 0));
  std::vector<c10::BFloat16> params = {1.0f, 1.0f};
  const std::vector<float> grad = {1, 1};
  const auto step = [&] {
    optimizer->BeginStep(1);
    optimizer->Update(0, grad, DType::kBfloat16, BytesOf(params));
  };
  // A step is less than half of a bfloat16's last place: the master alone moves.
  step();
  EXPECT_EQ(static_cast<float>(params[0]), 1.0f);
  params[1] = 2.0f;
  step();
  step();
  EXPECT_EQ(static_cast<float>(params[0]), 1.0f - 0x1p-8f);  // 1 - 3 * 2^-10, rounded
  EXPECT_EQ(static_cast<float>(params[1]), 2.0f);
}

TEST(ShardOptimizer, MayBeEmpty) {
  for (const OptimizerConfig& config : SomeConfigs()) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto optimizer, ShardOptimizer::Create(config, 0));
    LOCKSTEP_EXPECT_OK(optimizer->Step({}, 1, {}));
  }
}

TEST(ValidateOptimizer, RefusesBadSettingsByName) {
  const std::vector<std::pair<OptimizerConfig, std::string>> cases = {
      {Sgd{.lr = -1}, "lr is -1"},
      {Sgd{.lr = std::nan("")}, "lr is nan"},
      {Sgd{.momentum = -0.5}, "momentum is -0.5"},
      {Sgd{.dampening = kInfinity}, "dampening is inf"},
      {Sgd{.weight_decay = -1}, "weight_decay is -1"},
      {Sgd{.nesterov = true}, "nesterov is true with momentum 0"},
      {Sgd{.momentum = 0.9, .dampening = 0.1, .nesterov = true}, "dampening 0.1"},
      {Adam{.lr = kInfinity}, "lr is inf"},
      {Adam{.beta1 = 1}, "beta1 is 1"},
      {Adam{.beta2 = -0.1}, "beta2 is -0.1"},
      {Adam{.eps = -1e-8}, "eps is -1e-08"},
      {AdamW{.beta1 = std::nan("")}, "beta1 is nan"},
      {AdamW{.weight_decay = -0.01}, "weight_decay is -0.01"},
      {Adagrad{.lr = -1}, "lr is -1"},
      {Adagrad{.lr_decay = -0.5}, "lr_decay is -0.5"},
      {Adagrad{.weight_decay = kInfinity}, "weight_decay is inf"},
      {Adagrad{.initial_accumulator_value = -1}, "initial_accumulator_value is -1"},
      {Adagrad{.eps = std::nan("")}, "eps is nan"},
      {Sgd{.groups = {{.pattern = "a"}, {.pattern = ""}}}, "groups[1].pattern: "},
      {Sgd{.groups = {{.pattern = "re:("}}}, "groups[0].pattern: "},
      {Adam{.groups = {{.pattern = "a", .lr_scale = -1}}}, "groups[0].lr_scale is -1"},
      {Adam{.groups = {{.pattern = "a", .weight_decay = kInfinity}}},
       "groups[0].weight_decay is inf"},
      {AdamW{.groups = std::vector<ParameterGroup>(257, {.pattern = "a"})}, "257 groups"},
      {AdamW{.groups = std::vector<ParameterGroup>(5, {.pattern = std::string(1000, 'a')})},
       "bytes as text"},
  };
  for (const auto& [config, message] : cases) {
    EXPECT_THAT(Validate(config),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
    EXPECT_THAT(ShardOptimizer::Create(config, 1), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  for (const OptimizerConfig& config : SomeConfigs()) LOCKSTEP_EXPECT_OK(Validate(config));
}

TEST(DescribeOptimizer, TellsEverySettingWithAllItsDigits) {
  EXPECT_EQ(Describe(Sgd{.lr = 0.1, .momentum = 0.9, .nesterov = true}),
            "SGD(lr=0.1, momentum=0.9, dampening=0, weight_decay=0, nesterov=true)");
  EXPECT_EQ(Describe(AdamW{}),
            "AdamW(lr=0.001, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.01)");
  EXPECT_EQ(Describe(Adam{}),
            "Adam(lr=0.001, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0)");
  EXPECT_EQ(Describe(Adagrad{.lr_decay = 0.1}),
            "Adagrad(lr=0.01, lr_decay=0.1, weight_decay=0, initial_accumulator_value=0, "
            "eps=1e-10)");
  EXPECT_EQ(Describe(Sgd{.groups = {{.pattern = "**.bias", .weight_decay = 0},
                                    {.pattern = "re:it's\\d", .lr_scale = 0.1}}}),
            "SGD(lr=0.001, momentum=0, dampening=0, weight_decay=0, nesterov=false; "
            "'**.bias': lr_scale=1, weight_decay=0; 're:it\\'s\\\\d': lr_scale=0.1)");
  EXPECT_NE(Describe(Adam{.lr = 0.1}), Describe(Adam{.lr = std::nextafter(0.1, 1)}));
}

}  // namespace
}  // namespace lockstep
