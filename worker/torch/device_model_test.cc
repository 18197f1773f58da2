// A module whose parameters lie on another device than the CPU.
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "common/base/status_matchers.h"
#include "common/sharding/shard_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/module.h"
#include "worker/torch/fake_device.h"
#include "worker/torch/module_model.h"
#include "worker/torch/named_tensors.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

at::Tensor There(const at::Tensor& tensor) { return tensor.to(FakeDevice()); }

// Parameters "a" and "b", and whatever buffers a test registers.
struct Net : torch::nn::Module {
  explicit Net(c10::Device device = FakeDevice(), c10::ScalarType type = at::kFloat) {
    const auto options = at::TensorOptions().dtype(type);
    a = register_parameter("a", at::ones({2, 3}, options).to(device));
    b = register_parameter("b", at::full({20}, 2, options).to(device));
  }
  // Makes each gradient `factor` in all elements.
  void Backward(float of_a, float of_b) {
    ((a * of_a).sum() + (b * of_b).sum()).backward();
  }
  at::Tensor a;
  at::Tensor b;
};

class DeviceModelTest : public testing::TestWithParam<c10::ScalarType> {
 protected:
  void SetUp() override {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest, model_.Describe());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(plan_, PlanShards(manifest, 1));
    const std::size_t bytes = plan_.flat_elements * net_.a.element_size();
    parameters_.resize(bytes);
    gradients_.resize(bytes);
  }
  absl::Status Adopt() {
    return model_.Adopt(plan_,
                        std::vector<BlockMemory>{{.block = plan_.blocks[0],
                                                  .parameters = parameters_.data(),
                                                  .gradients = gradients_.data()}},
                        InitialValues::kCopyIn);
  }
  // Element `i` of an arena, as the CPU sees it.
  float At(std::vector<std::byte>& arena, std::int64_t i) {
    return at::from_blob(arena.data(), {plan_.flat_elements}, GetParam())[i].item<float>();
  }

  Net net_{FakeDevice(), GetParam()};
  ModuleModel model_{TensorsOf(net_), FakeDevice()};
  ShardPlan plan_;
  std::vector<std::byte> parameters_;
  std::vector<std::byte> gradients_;
};
INSTANTIATE_TEST_SUITE_P(Types, DeviceModelTest,
                         testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return c10::toString(info.param); });

TEST_P(DeviceModelTest, ParametersAndGradientsLiveInTheArenasOnTheirDevice) {
  LOCKSTEP_ASSERT_OK(Adopt());
  EXPECT_EQ(net_.a.device(), FakeDevice());
  EXPECT_EQ(net_.b.const_data_ptr(), parameters_.data() + 16 * net_.a.element_size());
  EXPECT_EQ(At(parameters_, 5), 1);
  EXPECT_EQ(At(parameters_, 16), 2);
  net_.Backward(0.5f, -3);
  EXPECT_EQ(At(gradients_, 0), 0.5f);
  net_.Backward(0.5f, -3);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound bound, model_.CollectGradients());
  EXPECT_EQ(At(gradients_, 5), 1);
  EXPECT_EQ(At(gradients_, 16), -6);
  EXPECT_EQ(net_.b.grad().device(), FakeDevice());
  EXPECT_EQ(bound.largest, 6);
  EXPECT_EQ(bound.not_finite, kAllFinite);
  model_.ClearGradients();
  // Without gradients, and what a step may leave in the arena.
  gradients_.assign(gradients_.size(), std::byte{0xff});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound none, model_.CollectGradients());
  EXPECT_EQ(none.largest, 0);
  EXPECT_EQ(At(gradients_, 35), 0);
  model_.Release();
  EXPECT_EQ(net_.b.device(), FakeDevice());
  EXPECT_NE(net_.b.const_data_ptr(), parameters_.data() + 16 * net_.a.element_size());
}

TEST_P(DeviceModelTest, AGradientThatIsNotFiniteIsNamedByItsPlace) {
  LOCKSTEP_ASSERT_OK(Adopt());
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
    net_.Backward(1, 2);
    net_.b.mutable_grad()[7] = bad;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound bound, model_.CollectGradients());
    EXPECT_EQ(bound.largest, kInfinity) << bad;
    EXPECT_EQ(bound.not_finite, 1) << bad;
    // One that training code made finite behind the version counter's back is.
    net_.b.grad().data().fill_(3);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound mended, model_.CollectGradients());
    EXPECT_EQ(mended.largest, 3);
    EXPECT_EQ(mended.not_finite, kAllFinite);
    model_.ClearGradients();
  }
}

TEST_P(DeviceModelTest, OfAnAnnouncedBackwardWhatWasMeasuredThenCounts) {
  LOCKSTEP_ASSERT_OK(Adopt());
  net_.Backward(1, 1);
  std::vector<std::size_t> told;
  model_.TellOfGradients([&](std::size_t placement) {
    told.push_back(placement);
    // As an owner that keeps its sums there.
    gradients_.assign(gradients_.size(), std::byte{0x7f});
  });
  net_.Backward(4, 2);
  EXPECT_THAT(told, testing::UnorderedElementsAre(0, 1));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound bound, model_.CollectGradients());
  // The first of both was measured before the arena was overwritten.
  EXPECT_GE(bound.largest, told[0] == 0 ? 5 : 3);
}

TEST_P(DeviceModelTest, AGradientOnAnotherDeviceIsTakenIn) {
  LOCKSTEP_ASSERT_OK(Adopt());
  const c10::Device other(FakeDevice().type(), 0);
  net_.b.mutable_grad() = at::Tensor();
  net_.Backward(1, 1);
  LOCKSTEP_ASSERT_OK(model_.CollectGradients().status());
  EXPECT_EQ(At(gradients_, 16), 1);
}

absl::Status AdoptOn(c10::Device of_parameters, c10::Device of_arenas) {
  Net net(of_parameters);
  ModuleModel model(TensorsOf(net), of_arenas);
  const absl::StatusOr<Manifest> manifest = model.Describe();
  if (!manifest.ok()) return manifest.status();
  const absl::StatusOr<ShardPlan> plan = PlanShards(*manifest, 1);
  std::vector<float> memory(2 * plan->flat_elements);
  const auto data = reinterpret_cast<std::byte*>(memory.data());
  const absl::Status status = model.Adopt(
      *plan,
      std::vector<BlockMemory>{{.block = plan->blocks[0],
                                .parameters = data,
                                .gradients = data + plan->flat_elements * sizeof(float)}},
      InitialValues::kCopyIn);
  EXPECT_EQ(net.a.device(), of_parameters);
  return status;
}

TEST(DeviceModel, ParametersElsewhereThanTheArenasAreRefusedWithBothPlaces) {
  const c10::Device first(FakeDevice().type(), 0);
  const c10::Device any(FakeDevice().type());
  for (const auto& [of_parameters, of_arenas] : std::vector<std::pair<c10::Device, c10::Device>>{
           {FakeDevice(), c10::kCPU},
           {c10::kCPU, FakeDevice()},
           {first, FakeDevice()},
           {c10::kCPU, any}}) {
    EXPECT_THAT(AdoptOn(of_parameters, of_arenas),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("parameter 'a'"),
                               HasSubstr("memory of " + of_arenas.str()),
                               HasSubstr("on " + of_parameters.str()),
                               HasSubstr("move the module there"))));
  }
  LOCKSTEP_EXPECT_OK(AdoptOn(FakeDevice(), any));
  LOCKSTEP_EXPECT_OK(AdoptOn(c10::kCPU, c10::kCPU));
}

TEST(DeviceModel, BuffersOfDeviceAndHostAreViewedWhereTheyAreIfTheyCanBe) {
  Net net;
  const at::Tensor count = at::arange(6, at::kFloat).reshape({2, 3});
  net.register_buffer("there", There(count));
  net.register_buffer("here", count.clone());
  net.register_buffer("turned", There(count).t());
  net.register_buffer("elsewhere", count.to(c10::Device(FakeDevice().type(), 0)));
  ModuleModel model(TensorsOf(net), FakeDevice());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<TensorAccess> access,
                                model.Buffers([](absl::string_view) { return true; }));
  std::vector<bool> on_device;
  for (const TensorView& view : access->views()) on_device.push_back(view.on_device);
  EXPECT_THAT(on_device, ElementsAre(true, false, false, false));
  const auto buffers = net.named_buffers();
  EXPECT_EQ(access->views()[0].data, buffers["there"].const_data_ptr());
  EXPECT_EQ(access->views()[1].data, buffers["here"].const_data_ptr());
  EXPECT_EQ(reinterpret_cast<const float*>(access->views()[2].data)[1], 3) << "row-major";

  // As a sync writes them.
  EXPECT_TRUE(access->Renew());
  for (const TensorView& view : access->views()) {
    reinterpret_cast<float*>(view.data)[1] = 100;
  }
  LOCKSTEP_ASSERT_OK(access->WriteBack(std::vector<std::size_t>{0, 1, 2, 3}));
  for (const char* name : {"there", "here", "elsewhere"}) {
    EXPECT_EQ(buffers[name].cpu()[0][1].item<float>(), 100) << name;
  }
  EXPECT_EQ(buffers["turned"].cpu()[0][1].item<float>(), 100);
  EXPECT_EQ(buffers["turned"].device(), FakeDevice());

  // Of a model whose arenas are the host's all of these are staged.
  ModuleModel on_host(TensorsOf(net));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<TensorAccess> staged,
                                on_host.Buffers([](absl::string_view) { return true; }));
  EXPECT_FALSE(staged->views()[0].on_device);
  EXPECT_NE(staged->views()[0].data, buffers["there"].const_data_ptr());
}

}  // namespace
}  // namespace lockstep
