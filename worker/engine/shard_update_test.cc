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
#include "worker/engine/joining.h"

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
    Manifest manifest;
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
      manifest.parameters.push_back(
          {{.name = std::string(DTypeName(dtype)), .dtype = dtype, .shape = {kElements}}, true});
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        membership_, FormAlone(Sgd{.lr = 1}, SyncPolicy(), manifest));
    auto math = std::make_shared<WatchedMath>();
    math_ = math.get();
    membership_->math = std::move(math);
    MakeGradients();
  }

  void MakeGradients() {
    std::ranges::fill(membership_->blocks[0].gradients.floats(), 1.0f);
    const auto shorts = reinterpret_cast<std::uint16_t*>(membership_->blocks[1].gradients.data);
    std::fill_n(shorts, kElements, std::uint16_t{0x3f80});  // 1
  }

  Agreement AgreedWith(double max_grad_norm) {
    ControlWord word;
    word.samples = 1;
    word.weight = 1;
    word.largest = 1;
    word.settings = {.learning_rate = 1, .max_grad_norm = max_grad_norm, .loss_scale = 1};
    return *membership_->transport->Agree(word);
  }

  std::unique_ptr<Membership> membership_;
  WatchedMath* math_ = nullptr;
};

TEST_F(ShardUpdateTest, AStepOfOnePassKeepsNothing) {
  ShardUpdate update(membership_.get(), nullptr);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<double> norm, update.Apply(AgreedWith(0)));
  EXPECT_FALSE(norm.has_value());
  EXPECT_EQ(math_->allocated, 0);
  EXPECT_EQ(math_->copied, 0);
  EXPECT_EQ(membership_->blocks[0].parameters.floats()[kElements - 1], -1);
}

TEST_F(ShardUpdateTest, ClippingKeepsSumsOfShortTypesInMemoryOfTheDeviceMadeOnce) {
  ShardUpdate update(membership_.get(), nullptr);
  for (int step = 1; step <= 2; ++step) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<double> norm, update.Apply(AgreedWith(32)));
    EXPECT_EQ(norm, 64);  // of 4096 elements
    EXPECT_EQ(math_->allocated, kElements);
    EXPECT_EQ(math_->copied, step * 2 * kElements);
    MakeGradients();
  }
  EXPECT_NEAR(membership_->blocks[0].parameters.floats()[kElements - 1], -1, 1e-6);
  const auto shorts =
      reinterpret_cast<const std::uint16_t*>(membership_->blocks[1].parameters.data);
  EXPECT_EQ(shorts[kElements - 1], 0xbf80);  // -1
}

TEST_F(ShardUpdateTest, ACopyThatFailedIsTheStepsErrorAndNothingWasUpdated) {
  math_->fails_at = kElements + 1024;
  ShardUpdate update(membership_.get(), nullptr);
  EXPECT_THAT(update.Apply(AgreedWith(1)).status(),
              StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("copies no more")));
  EXPECT_EQ(membership_->blocks[0].parameters.floats()[0], 0);
}

TEST_F(ShardUpdateTest, AnUpdateThatFailedIsTheStepsError) {
  membership_->own().optimizer = std::make_unique<FailingOptimizer>();
  for (const double max_grad_norm : {0, 1}) {
    membership_->commit = StepCommit(Epoch(1), Epoch(1), 0, 0, {});
    ShardUpdate update(membership_.get(), nullptr);
    EXPECT_THAT(update.Apply(AgreedWith(max_grad_norm)).status(),
                StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("updates no more")));
    EXPECT_EQ(membership_->commit.stage(), StepCommit::Stage::kUpdating) << "copies are of no step";
  }
}

}  // namespace
}  // namespace lockstep
