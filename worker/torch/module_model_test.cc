#include "worker/torch/module_model.h"

#include <cstring>
#include <utility>

#include "common/base/status_matchers.h"
#include "common/sharding/shard_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/script.h"
#include "torch/torch.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

bool All(absl::string_view) { return true; }

// Whatever tensors a test wants to have.
struct ListedTensors final : NamedTensors {
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;

  std::vector<NamedTensor> Parameters() const override { return parameters; }
  std::vector<NamedTensor> Buffers() const override { return buffers; }
};

std::unique_ptr<ModuleModel> ModelOfBuffers(std::vector<NamedTensor> buffers) {
  auto tensors = std::make_unique<ListedTensors>();
  tensors->buffers = std::move(buffers);
  return std::make_unique<ModuleModel>(std::move(tensors));
}

std::vector<std::string> NamesOf(const TensorAccess& access) {
  std::vector<std::string> names;
  for (const TensorView& view : access.views()) names.push_back(view.spec.name);
  return names;
}

// Overwrites all views with bytes that count up from `first`.
void Count(const TensorAccess& access, int first) {
  for (const TensorView& view : access.views()) {
    for (std::int64_t i = 0; i < view.bytes(); ++i) {
      view.data[i] = static_cast<std::byte>(first + i);
    }
  }
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(1);
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, 3)));
    norm = register_module("norm", torch::nn::BatchNorm2d(2));
    inner = register_module("inner", torch::nn::Sequential(torch::nn::Linear(8, 3)));
    scale = register_parameter("scale", torch::ones({3}));
    conv->bias.requires_grad_(false);
  }
  torch::Tensor forward(torch::Tensor x) {
    return inner->forward(norm->forward(conv->forward(x)).flatten(1)) * scale;
  }

  torch::nn::Conv2d conv = nullptr;
  torch::nn::BatchNorm2d norm = nullptr;
  torch::nn::Sequential inner = nullptr;
  torch::Tensor scale;
};
TORCH_MODULE(Net);

torch::Tensor SomeInput() { return torch::arange(2 * 16).reshape({2, 1, 4, 4}) / 32.0; }

// A net whose parameters are in arenas.
class AdoptedNet : public testing::Test {
 protected:
  void SetUp() override {
    before_ = net_->inner[0]->as<torch::nn::Linear>()->weight.detach().clone();
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest, model_.Describe());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(plan_, PlanShards(manifest, 1));
    parameters_.resize(plan_.flat_elements);
    gradients_.resize(plan_.flat_elements, 7);
    LOCKSTEP_ASSERT_OK(
        model_.Adopt(plan_, parameters_, gradients_, InitialValues::kCopyIn));
  }

  std::span<float> Part(std::span<float> arena, const std::string& name) const {
    for (const Placement& placement : plan_.placements) {
      if (placement.name == name) return arena.subspan(placement.offset, placement.elements);
    }
    ADD_FAILURE() << name << " is not in the arena";
    return {};
  }
  torch::Tensor Gradient(const std::string& name) {
    const std::span<float> part = Part(gradients_, name);
    return torch::from_blob(part.data(), {static_cast<std::int64_t>(part.size())});
  }

  Net net_;
  ModuleModel model_{TensorsOf(*net_)};
  torch::Tensor before_;
  ShardPlan plan_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
};

TEST(Describe, ListsNestedNamesWithTheirTypesAndShapes) {
  Net net;
  ModuleModel model(TensorsOf(*net));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest, model.Describe());
  std::vector<std::string> parameters;
  for (const ParameterSpec& spec : manifest.parameters) {
    parameters.push_back(spec.tensor.name + (spec.trainable ? "" : " (frozen)"));
  }
  EXPECT_THAT(parameters, ElementsAre("scale", "conv.weight", "conv.bias (frozen)", "norm.weight",
                                      "norm.bias", "inner.0.weight", "inner.0.bias"));
  std::vector<std::string> buffers;
  for (const TensorSpec& spec : manifest.buffers) {
    buffers.push_back(spec.name + " " + spec.ToString());
  }
  EXPECT_THAT(buffers, ElementsAre("norm.running_mean float32[2]", "norm.running_var float32[2]",
                                   "norm.num_batches_tracked int64[]"));
}

TEST(Describe, ATrainableParameterThatIsNotFloat32IsRefusedByThePlan) {
  auto tensors = std::make_unique<ListedTensors>();
  tensors->parameters = {{"half", torch::ones({4}, torch::kHalf).requires_grad_()}};
  ModuleModel model(std::move(tensors));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest, model.Describe());
  EXPECT_THAT(PlanShards(manifest, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("half")));
}

TEST(Describe, RefusesTensorsThatCannotTakePartByName) {
  const std::vector<std::pair<at::Tensor, std::string>> unfit = {
      {at::Tensor(), "undefined"},
      {torch::ones({2}, torch::kMeta), "meta"},
      {torch::ones({2, 2}).to_sparse(), "sparse"},
      {torch::quantize_per_tensor(torch::ones({2}), 0.1, 0, torch::kQInt8), "QInt8"},
  };
  for (std::size_t i = 0; i < unfit.size(); ++i) {
    const auto model = ModelOfBuffers({{"a.bad", unfit[i].first}});
    EXPECT_THAT(model->Describe(), StatusIs(absl::StatusCode::kInvalidArgument,
                                            AllOf(HasSubstr("buffer 'a.bad'"),
                                                  HasSubstr(unfit[i].second))));
    EXPECT_THAT(model->Buffers(All),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("buffer 'a.bad'")));
  }
}

TEST(Buffers, AnExcludedBufferIsNotInspected) {
  const auto model =
      ModelOfBuffers({{"meta", torch::ones({2}, torch::kMeta)}, {"good", torch::ones({2})}});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto access, model->Buffers([](absl::string_view name) { return name == "good"; }));
  EXPECT_THAT(NamesOf(*access), ElementsAre("good"));
}

TEST(Buffers, EveryElementTypeIsViewedByteForByte) {
  const std::vector<std::pair<at::ScalarType, DType>> types = {
      {at::kBool, DType::kBool},
      {at::kChar, DType::kInt8},
      {at::kShort, DType::kInt16},
      {at::kInt, DType::kInt32},
      {at::kLong, DType::kInt64},
      {at::kByte, DType::kUint8},
      {at::kUInt16, DType::kUint16},
      {at::kUInt32, DType::kUint32},
      {at::kUInt64, DType::kUint64},
      {at::kHalf, DType::kFloat16},
      {at::kBFloat16, DType::kBfloat16},
      {at::kFloat, DType::kFloat32},
      {at::kDouble, DType::kFloat64},
      {at::kComplexHalf, DType::kComplex32},
      {at::kComplexFloat, DType::kComplex64},
      {at::kComplexDouble, DType::kComplex128},
      {at::kFloat8_e4m3fn, DType::kFloat8E4m3fn},
      {at::kFloat8_e5m2, DType::kFloat8E5m2},
      {at::kFloat8_e4m3fnuz, DType::kFloat8E4m3fnuz},
      {at::kFloat8_e5m2fnuz, DType::kFloat8E5m2fnuz},
      {at::kFloat8_e8m0fnu, DType::kFloat8E8m0fnu},
  };
  for (const auto& [type, dtype] : types) {
    // Direct, and through a staged copy of every second element.
    for (const bool strided : {false, true}) {
      at::Tensor tensor = at::empty({3, strided ? 4 : 2}, type);
      if (strided) tensor = tensor.slice(1, 0, 4, 2);
      const auto model = ModelOfBuffers({{"buffer", tensor}});
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model->Buffers(All));
      const TensorView& view = access->views()[0];
      EXPECT_EQ(view.spec.dtype, dtype) << c10::toString(type);
      EXPECT_EQ(view.bytes(), static_cast<std::int64_t>(6 * tensor.element_size()));
      EXPECT_EQ(view.data == tensor.data_ptr(), !strided);
      // Bytes of 0 and 1 are valid in every type, also in bool.
      for (std::int64_t i = 0; i < view.bytes(); ++i) view.data[i] = std::byte(i % 2);
      LOCKSTEP_ASSERT_OK(access->WriteBack(AllOf(*access)));
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto again, model->Buffers(All));
      for (std::int64_t i = 0; i < view.bytes(); ++i) {
        ASSERT_EQ(again->views()[0].data[i], std::byte(i % 2)) << c10::toString(type);
      }
    }
  }
}

TEST(Buffers, AnyLayoutIsStagedAndWrittenBackInPlace) {
  const at::Tensor base = torch::zeros({4, 6});  // of two buffers that share no element
  const std::vector<NamedTensor> buffers = {
      {"transposed", torch::zeros({2, 3}).t()},
      {"channels_last", torch::zeros({2, 3, 4, 5}).to(at::MemoryFormat::ChannelsLast)},
      {"column", base.select(1, 2)},
      {"block", base.slice(0, 0, 4, 2).slice(1, 3, 6)},
      {"conjugate", torch::zeros({3}, torch::kComplexFloat).conj()},
  };
  const auto model = ModelOfBuffers(buffers);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model->Buffers(All));
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const TensorView& view = access->views()[i];
    const at::Tensor expected =
        torch::arange(view.spec.elements()).to(buffers[i].tensor.scalar_type()).reshape(
            buffers[i].tensor.sizes()) + 1;
    const at::Tensor contiguous = expected.contiguous();
    std::memcpy(view.data, contiguous.const_data_ptr(), view.bytes());
    const auto strides = buffers[i].tensor.strides().vec();
    const void* memory = buffers[i].tensor.const_data_ptr();
    LOCKSTEP_ASSERT_OK(access->WriteBack(AllOf(*access)));
    EXPECT_EQ(buffers[i].tensor.strides().vec(), strides);
    EXPECT_EQ(buffers[i].tensor.const_data_ptr(), memory);
    EXPECT_TRUE(torch::equal(buffers[i].tensor, expected)) << buffers[i].name;
  }
  EXPECT_EQ(base.select(1, 1).abs().sum().item<float>(), 0);
}

TEST(Buffers, ExpandedTensorsAreRefusedByName) {
  const auto model = ModelOfBuffers({{"mean", torch::ones({1}).expand({4})}});
  EXPECT_THAT(model->Buffers(All),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("buffer 'mean'")));
  const auto window =
      ModelOfBuffers({{"window", torch::ones({4}).unfold(0, 2, 1)}});
  EXPECT_THAT(window->Buffers(All),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("buffer 'window'")));
}

TEST(Buffers, ScalarsAndEmptyTensorsTakePart) {
  const at::Tensor scalar = torch::zeros({}, torch::kLong);
  const auto model = ModelOfBuffers({{"scalar", scalar},
                                     {"empty", torch::zeros({0, 3})},
                                     {"none", torch::zeros({2, 0}).t()}});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model->Buffers(All));
  ASSERT_THAT(NamesOf(*access), ElementsAre("scalar", "empty", "none"));
  EXPECT_EQ(access->views()[0].bytes(), 8);
  EXPECT_EQ(access->views()[1].bytes(), 0);
  const std::int64_t value = 42;
  std::memcpy(access->views()[0].data, &value, sizeof(value));
  LOCKSTEP_ASSERT_OK(access->WriteBack(AllOf(*access)));
  EXPECT_EQ(scalar.item<std::int64_t>(), 42);
}

TEST(Buffers, ATensorWithTwoNamesAppearsOnceAndStaysOneTensor) {
  const at::Tensor shared = torch::zeros({4});
  const auto model = ModelOfBuffers(
      {{"a", shared}, {"b", shared}, {"c", shared.view({4})}, {"d", shared.view({2, 2})}});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model->Buffers(All));
  EXPECT_THAT(NamesOf(*access), ElementsAre("a", "d"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto second, model->Buffers([](absl::string_view name) { return name != "a"; }));
  EXPECT_THAT(NamesOf(*second), ElementsAre("b", "d"));
}

TEST(Buffers, AReassignedBufferIsFollowed) {
  torch::jit::Module module("m");
  module.register_buffer("ema", torch::zeros({2}));
  ModuleModel model(TensorsOf(module));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto before, model.Buffers(All));
  const at::Tensor replacement = torch::ones({2});
  module.setattr("ema", replacement);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model.Buffers(All));
  EXPECT_EQ(access->views()[0].data, replacement.data_ptr());
  EXPECT_NE(access->views()[0].data, before->views()[0].data);
}

TEST(Buffers, AGraphThatSavedABufferRefusesToUseItAfterASync) {
  const at::Tensor buffer = torch::ones({2});
  const at::Tensor weight = torch::ones({2}).requires_grad_();
  const auto model = ModelOfBuffers({{"buffer", buffer}});
  const at::Tensor loss = (weight * buffer).sum();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model->Buffers(All));
  Count(*access, 0);
  LOCKSTEP_ASSERT_OK(access->WriteBack(AllOf(*access)));
  EXPECT_THROW(loss.backward(), c10::Error);
  // And a graph made afterwards is none the worse for it.
  (weight * buffer).sum().backward();
  EXPECT_TRUE(torch::equal(weight.grad(), buffer));
}

TEST_F(AdoptedNet, ParametersKeepTheirValuesAndLiveInTheArena) {
  const torch::Tensor weight = net_->inner[0]->as<torch::nn::Linear>()->weight;
  const std::span<float> part = Part(parameters_, "inner.0.weight");
  EXPECT_EQ(weight.const_data_ptr(), part.data());
  EXPECT_TRUE(torch::equal(weight, before_));
  part[0] = 5;
  EXPECT_EQ(weight[0][0].item<float>(), 5);
}

TEST_F(AdoptedNet, DiscardTakesWhatTheArenaHolds) {
  model_.Release();
  std::fill(parameters_.begin(), parameters_.end(), 0.25f);
  LOCKSTEP_ASSERT_OK(model_.Adopt(plan_, parameters_, gradients_, InitialValues::kDiscard));
  EXPECT_TRUE(torch::equal(net_->scale, torch::full({3}, 0.25)));
}

TEST_F(AdoptedNet, BackwardAccumulatesInTheArena) {
  for (float value : gradients_) ASSERT_TRUE(value == 0 || value == 7);
  EXPECT_TRUE(torch::equal(Gradient("scale"), torch::zeros({3})));
  Net twin;
  for (int pass = 0; pass < 2; ++pass) {
    net_->forward(SomeInput()).sum().backward();
    twin->forward(SomeInput()).sum().backward();
  }
  EXPECT_EQ(net_->scale.grad().const_data_ptr(), Part(gradients_, "scale").data());
  LOCKSTEP_ASSERT_OK(model_.CollectGradients());
  EXPECT_TRUE(torch::equal(Gradient("scale"), twin->scale.grad()));
  EXPECT_TRUE(torch::equal(Gradient("conv.weight"), twin->conv->weight.grad().flatten()));
}

TEST_F(AdoptedNet, GradientsThatWereSetToNoneOrReplacedAreTakenInAndViewsAgain) {
  net_->forward(SomeInput()).sum().backward();
  net_->zero_grad(/*set_to_none=*/true);
  net_->scale.mutable_grad() = torch::full({3}, 2.0);
  LOCKSTEP_ASSERT_OK(model_.CollectGradients());
  EXPECT_TRUE(torch::equal(Gradient("scale"), torch::full({3}, 2.0)));
  EXPECT_EQ(Gradient("conv.weight").abs().sum().item<float>(), 0);
  for (const torch::Tensor& parameter : net_->parameters()) {
    if (!parameter.requires_grad()) continue;
    ASSERT_TRUE(parameter.grad().defined());
    EXPECT_GE(parameter.grad().const_data_ptr(), static_cast<void*>(gradients_.data()));
    EXPECT_LT(parameter.grad().const_data_ptr(),
              static_cast<void*>(gradients_.data() + gradients_.size()));
  }
}

TEST_F(AdoptedNet, ASparseGradientIsTakenIn) {
  net_->scale.mutable_grad() = torch::tensor({0.0f, 3.0f, 0.0f}).to_sparse();
  LOCKSTEP_ASSERT_OK(model_.CollectGradients());
  EXPECT_TRUE(torch::equal(Gradient("scale"), torch::tensor({0.0f, 3.0f, 0.0f})));
}

TEST_F(AdoptedNet, AParameterThatLeftTheArenaIsAnErrorWithItsName) {
  net_->scale.set_data(torch::ones({3}));
  EXPECT_THAT(model_.CollectGradients(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                  HasSubstr("parameter 'scale'")));
}

TEST_F(AdoptedNet, AConvertedParameterIsAnErrorWithItsName) {
  net_->inner->to(torch::kDouble);
  EXPECT_THAT(model_.CollectGradients(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                  HasSubstr("parameter 'inner.0.weight'")));
}

TEST_F(AdoptedNet, AFrozenParameterIsNotInTheArena) {
  for (const Placement& placement : plan_.placements) EXPECT_NE(placement.name, "conv.bias");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto frozen, model_.FrozenParameters());
  EXPECT_THAT(NamesOf(*frozen), ElementsAre("conv.bias"));
}

TEST_F(AdoptedNet, UnfreezingLaterIsAnErrorWithTheName) {
  net_->conv->bias.requires_grad_(true);
  EXPECT_THAT(model_.CollectGradients(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                  HasSubstr("parameter 'conv.bias'")));
}

TEST_F(AdoptedNet, ReleaseGivesOwnedCopiesBack) {
  parameters_[0] = 9;
  const at::Tensor first = net_->scale.detach().clone();
  model_.Release();
  std::fill(parameters_.begin(), parameters_.end(), -1.0f);
  EXPECT_TRUE(torch::equal(net_->scale, first));
  EXPECT_FALSE(net_->scale.grad().defined());
  net_->forward(SomeInput()).sum().backward();
  EXPECT_EQ(gradients_[0], 0);
}

TEST_F(AdoptedNet, AdoptingTwiceIsRefused) {
  EXPECT_THAT(model_.Adopt(plan_, parameters_, gradients_, InitialValues::kCopyIn),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(Adopt, APlanThatDoesNotFitChangesNothing) {
  Net net;
  ModuleModel model(TensorsOf(*net));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest, model.Describe());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(ShardPlan plan, PlanShards(manifest, 1));
  std::vector<float> parameters(plan.flat_elements);
  std::vector<float> gradients(plan.flat_elements);
  plan.placements.back().elements += 1;
  const void* before = net->scale.const_data_ptr();
  EXPECT_THAT(model.Adopt(plan, parameters, gradients, InitialValues::kCopyIn),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("inner.0.bias")));
  EXPECT_EQ(net->scale.const_data_ptr(), before);
  EXPECT_FALSE(net->scale.grad().defined());
}

TEST(Script, ParametersAndBuffersOfATorchScriptModuleTakePart) {
  torch::jit::Module inner("inner");
  inner.register_parameter("weight", torch::ones({3}).requires_grad_(), /*is_buffer=*/false);
  inner.register_buffer("seen", torch::zeros({}, torch::kLong));
  torch::jit::Module module("outer");
  module.register_module("inner", inner);
  module.define("def forward(self, x):\n    return (x * self.inner.weight).sum()\n");
  ModuleModel model(TensorsOf(module));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest, model.Describe());
  ASSERT_EQ(manifest.parameters.size(), 1u);
  EXPECT_EQ(manifest.parameters[0].tensor.name, "inner.weight");
  ASSERT_EQ(manifest.buffers.size(), 1u);
  EXPECT_EQ(manifest.buffers[0].name, "inner.seen");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(manifest, 1));
  std::vector<float> parameters(plan.flat_elements);
  std::vector<float> gradients(plan.flat_elements);
  LOCKSTEP_ASSERT_OK(model.Adopt(plan, parameters, gradients, InitialValues::kCopyIn));
  module.forward({torch::full({3}, 2.0)}).toTensor().backward();
  LOCKSTEP_ASSERT_OK(model.CollectGradients());
  EXPECT_THAT(std::span(gradients).first(3), ElementsAre(2, 2, 2));
  parameters[0] = 10;
  EXPECT_EQ(module.forward({torch::full({3}, 2.0)}).toTensor().item<float>(), 24);
}

}  // namespace
}  // namespace lockstep
