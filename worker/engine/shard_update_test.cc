// What shard updates ask of a device, and what becomes of its errors. The results of
// updates are checked by engine_test.cc and tests/parity.
#include "worker/engine/shard_update.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/device/forwarding_math.h"
#include "worker/device/host_math.h"
#include "worker/engine/solo_transport.h"

namespace lockstep {
namespace {

constexpr std::int64_t kElements = 2048;

class WatchedMath final : public ForwardingMath {
 public:
  WatchedMath() : ForwardingMath(std::make_unique<HostMath>()) {}
  absl::StatusOr<std::shared_ptr<float[]>> Allocate(std::int64_t elements) override {
    allocated += elements;
    return ForwardingMath::Allocate(elements);
  }
  absl::Status Copy(std::span<const float> from, float* to) override {
    copied += static_cast<std::int64_t>(from.size());
    return copied == fails_at ? absl::InternalError("the device copies no more")
                              : ForwardingMath::Copy(from, to);
  }

  std::int64_t allocated = 0;
  std::int64_t copied = 0;
  std::int64_t fails_at = -1;
};

// The host's, on a device that fails in its first update.
class FailingOptimizer final : public ShardOptimizer {
 public:
  void BeginStep(float grad_scale) override { status_ = absl::OkStatus(); }
  void Update(std::int64_t begin, std::span<const float> gradients, DType dtype,
              std::byte* params) override {
    status_ = absl::InternalError("the device updates no more");
  }
  absl::Status EndStep() override { return status_; }
  absl::Status SetLearningRate(double lr) override { return absl::OkStatus(); }
  double learning_rate() const override { return 1; }
  std::int64_t elements() const override { return 2 * kElements; }
  std::vector<StateSlot> state() override { return {}; }
  std::int64_t step() const override { return 0; }
  void set_step(std::int64_t step) override {}
  std::int64_t state_bytes() const override { return 0; }

 private:
  absl::Status status_;
};

// One rank with a block of float32 and one of bfloat16; all gradients are 1.
class ShardUpdateTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const Arena parameters, transport_.Allocate(ArenaUse::kParameters, dtype, kElements));
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const Arena gradients, transport_.Allocate(ArenaUse::kGradients, dtype, kElements));
      blocks_.push_back({.parameters = parameters,
                         .gradients = gradients,
                         .shards = {{0, kElements}},
                         .place = static_cast<std::int64_t>(blocks_.size()) * kElements});
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        optimizer_, math_.MakeOptimizer(Sgd{.lr = 1}, {{0, 2 * kElements, kNoGroup}}, kElements));
    MakeGradients();
  }

  void MakeGradients() {
    std::ranges::fill(blocks_[0].gradients.floats(), 1.0f);
    const auto shorts = reinterpret_cast<std::uint16_t*>(blocks_[1].gradients.data);
    std::fill_n(shorts, kElements, std::uint16_t{0x3f80});  // 1
  }

  Agreement AgreedWith(double max_grad_norm) {
    ControlWord word;
    word.samples = 1;
    word.weight = 1;
    word.largest = 1;
    word.settings = {.learning_rate = 1, .max_grad_norm = max_grad_norm, .loss_scale = 1};
    return *transport_.Agree(word);
  }

  WatchedMath math_;
  SoloTransport transport_{"w0"};
  std::vector<BlockArenas> blocks_;
  std::unique_ptr<ShardOptimizer> optimizer_;
};

TEST_F(ShardUpdateTest, AStepOfOnePassKeepsNothing) {
  ShardUpdate update(&math_, optimizer_.get(), &transport_, blocks_);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<double> norm, update.Apply(AgreedWith(0)));
  EXPECT_FALSE(norm.has_value());
  EXPECT_EQ(math_.allocated, 0);
  EXPECT_EQ(math_.copied, 0);
  EXPECT_EQ(blocks_[0].parameters.floats()[kElements - 1], -1);
}

TEST_F(ShardUpdateTest, ClippingKeepsSumsOfShortTypesInMemoryOfTheDeviceMadeOnce) {
  ShardUpdate update(&math_, optimizer_.get(), &transport_, blocks_);
  for (int step = 1; step <= 2; ++step) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<double> norm, update.Apply(AgreedWith(32)));
    EXPECT_EQ(norm, 64);  // of 4096 elements
    EXPECT_EQ(math_.allocated, kElements);
    EXPECT_EQ(math_.copied, step * 2 * kElements);
    MakeGradients();
  }
  EXPECT_NEAR(blocks_[0].parameters.floats()[kElements - 1], -1, 1e-6);
  const auto shorts = reinterpret_cast<const std::uint16_t*>(blocks_[1].parameters.data);
  EXPECT_EQ(shorts[kElements - 1], 0xbf80);  // -1
}

TEST_F(ShardUpdateTest, ACopyThatFailedIsTheStepsErrorAndNothingWasUpdated) {
  math_.fails_at = kElements + 1024;
  ShardUpdate update(&math_, optimizer_.get(), &transport_, blocks_);
  EXPECT_THAT(update.Apply(AgreedWith(1)).status(),
              StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("copies no more")));
  EXPECT_EQ(blocks_[0].parameters.floats()[0], 0);
}

TEST_F(ShardUpdateTest, AnUpdateThatFailedIsTheStepsError) {
  FailingOptimizer optimizer;
  ShardUpdate update(&math_, &optimizer, &transport_, blocks_);
  for (const double max_grad_norm : {0, 1}) {
    EXPECT_THAT(update.Apply(AgreedWith(max_grad_norm)).status(),
                StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("updates no more")));
  }
}

}  // namespace
}  // namespace lockstep
