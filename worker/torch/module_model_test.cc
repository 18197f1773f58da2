#include "worker/torch/module_model.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "c10/core/InferenceMode.h"
#include "common/base/status_matchers.h"
#include "common/sharding/shard_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/script.h"
#include "torch/torch.h"
#include "worker/torch/nn_lists.h"

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

  bool VisitParameters(Visit visit) const override { return VisitEach(parameters, visit); }
  bool VisitBuffers(Visit visit) const override { return VisitEach(buffers, visit); }

 private:
  static bool VisitEach(const std::vector<NamedTensor>& tensors, Visit visit) {
    return std::ranges::all_of(
        tensors, [&](const NamedTensor& named) { return visit(named.name, named.tensor); });
  }
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

std::vector<BlockMemory> MemoryOf(const ShardPlan& plan, std::vector<float>& parameters,
                                  std::vector<float>& gradients) {
  return {{.block = plan.blocks[0],
           .parameters = reinterpret_cast<std::byte*>(parameters.data()),
           .gradients = reinterpret_cast<std::byte*>(gradients.data())}};
}

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
        model_.Adopt(plan_, MemoryOf(plan_, parameters_, gradients_), InitialValues::kCopyIn));
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

TEST(Describe, ATrainableParameterOfATypeThatCannotBeTrainedIsRefusedByThePlan) {
  auto tensors = std::make_unique<ListedTensors>();
  tensors->parameters = {{"whole", torch::ones({4}, torch::kDouble).requires_grad_()}};
  ModuleModel model(std::move(tensors));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest, model.Describe());
  EXPECT_THAT(PlanShards(manifest, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("whole")));
}

TEST(Describe, ABufferWithoutPlainValuesIsListedWithoutTypeAndShape) {
  const auto model = ModelOfBuffers({{"a", torch::ones({2})},
                                     {"sparse", torch::ones({2, 2}).to_sparse()},
                                     {"meta", torch::ones({2}, torch::kMeta)},
                                     {"undefined", at::Tensor()},
                                     {"z", torch::ones({3}, torch::kLong)}});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest, model->Describe());
  EXPECT_THAT(manifest.buffers,
              ElementsAre(TensorSpec{"a", DType::kFloat32, {2}}, TensorSpec{"sparse"},
                          TensorSpec{"meta"}, TensorSpec{"undefined"},
                          TensorSpec{"z", DType::kInt64, {3}}));
  EXPECT_THAT(model->Buffers(All),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("buffer 'sparse'"), HasSubstr("exclude it"))));
}

TEST(Describe, AParameterWithoutPlainValuesIsRefusedByName) {
  auto tensors = std::make_unique<ListedTensors>();
  tensors->parameters = {{"lazy", torch::ones({2}, torch::kMeta)}};
  EXPECT_THAT(ModuleModel(std::move(tensors)).Describe(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("parameter 'lazy'")));
}

TEST(Buffers, AnExcludedBufferIsNotInspected) {
  const auto model = ModelOfBuffers({{"sparse", torch::ones({2, 2}).to_sparse()},
                                     {"good", torch::ones({2})},
                                     {"undefined", at::Tensor()}});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto access, model->Buffers([](absl::string_view name) { return name == "good"; }));
  EXPECT_THAT(NamesOf(*access), ElementsAre("good"));
}

TEST(Buffers, ATypeOrShapeThatChangedSinceJoiningIsFollowed) {
  Net net;
  ModuleModel model(TensorsOf(*net));
  LOCKSTEP_ASSERT_OK(model.Describe().status());
  net->norm->running_mean.resize_({5});
  net->norm->running_var.set_data(torch::full({2}, 7.0, torch::kDouble));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model.Buffers(All));
  EXPECT_EQ(access->views()[0].spec.ToString(), "float32[5]");
  EXPECT_EQ(access->views()[1].spec.ToString(), "float64[2]");
  EXPECT_EQ(access->views()[1].data, net->norm->running_var.data_ptr());
}

TEST(Buffers, ABufferThatIsRegisteredLaterIsFollowed) {
  Net net;
  ModuleModel model(TensorsOf(*net));
  LOCKSTEP_ASSERT_OK(model.Describe().status());
  net->register_buffer("late", torch::ones({3}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model.Buffers(All));
  EXPECT_THAT(NamesOf(*access), ElementsAre("late", "norm.running_mean", "norm.running_var",
                                            "norm.num_batches_tracked"));
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

std::string TextOf(const std::string& name, const at::Tensor& tensor) {
  return absl::StrFormat("%s at %p", name, static_cast<const void*>(tensor.unsafeGetTensorImpl()));
}

std::vector<std::string> TextsOf(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> texts;
  for (const auto& [name, tensor] : tensors) texts.push_back(TextOf(name, tensor));
  return texts;
}

TEST(Walk, VisitsWhatLibTorchListsOfANnModule) {
  Net net;
  const auto shared = std::make_shared<torch::nn::Module>("shared");
  shared->register_buffer("again", shared->register_buffer("once", torch::ones({2})));
  shared->register_buffer("nothing", torch::Tensor());
  net->register_module("first", shared);
  net->inner->push_back(torch::nn::Linear(torch::nn::LinearOptions(3, 3).bias(false)));
  net->inner->register_module("second", shared);
  net->register_buffer("last", torch::ones({}));
  const auto texts = [](const torch::OrderedDict<std::string, at::Tensor>& listed) {
    std::vector<std::string> all;
    for (const auto& item : listed) all.push_back(TextOf(item.key(), item.value()));
    return all;
  };
  EXPECT_EQ(TextsOf(TensorsOf(*net)->Parameters()), texts(net->named_parameters()));
  EXPECT_EQ(TextsOf(TensorsOf(*net)->Buffers()), texts(net->named_buffers()));
  EXPECT_EQ(net->named_buffers().size(), 8u);
}

TEST(Walk, VisitsWhatLibTorchListsOfAScriptModule) {
  torch::jit::Module inner("inner");
  inner.register_buffer("mean", torch::zeros({2}));
  inner.register_parameter("weight", torch::ones({3}), /*is_buffer=*/false);
  inner.register_parameter("bias", torch::Tensor(), /*is_buffer=*/false);
  inner.register_attribute("cache", c10::TensorType::get(), torch::zeros({9}));
  inner.register_attribute("none", c10::OptionalType::ofTensor(), c10::IValue(),
                           /*is_param=*/true);
  torch::jit::Module module("outer");
  module.register_buffer("top", torch::zeros({2}));
  module.register_module("first", inner);
  module.register_parameter("scale", torch::ones({3}), /*is_buffer=*/false);
  module.register_module("second", inner);
  module.register_buffer("last", inner.attr("mean").toTensor());
  const auto texts = [](const auto& listed) {
    std::vector<std::string> all;
    for (const auto& item : listed) all.push_back(TextOf(item.name, item.value));
    return all;
  };
  EXPECT_EQ(TextsOf(TensorsOf(module)->Parameters()), texts(module.named_parameters()));
  EXPECT_EQ(TextsOf(TensorsOf(module)->Buffers()), texts(module.named_buffers()));
  EXPECT_EQ(TensorsOf(module)->Buffers().size(), 4u);
}

// A model whose buffers were found, and may have changed since then.
class FoundBuffers : public testing::Test {
 protected:
  void SetUp() override {
    module_.register_buffer("plain", torch::ones({4}));
    module_.register_buffer("square", torch::ones({2, 2}).t());
    module_.register_buffer("complex", torch::ones({2}, torch::kComplexFloat));
    module_.register_buffer("alias", Buffer("plain"));
    module_.register_buffer("excluded", torch::ones({2}));
    child_->register_buffer("b", torch::ones({2}));
    module_.register_module("child", child_);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        access_, model_.Buffers([](absl::string_view name) { return name != "excluded"; }));
    ASSERT_THAT(NamesOf(*access_), ElementsAre("plain", "square", "complex", "child.b"));
    ASSERT_TRUE(access_->Renew());
  }

  // The module's handle itself.
  torch::Tensor& Buffer(const std::string& name) {
    return const_cast<torch::Tensor&>(BuffersOf(module_)[name]);
  }

  torch::nn::Module module_ = torch::nn::Module("module");
  const std::shared_ptr<torch::nn::Module> child_ = std::make_shared<torch::nn::Module>("child");
  ModuleModel model_ = ModuleModel(TensorsOf(module_));
  std::unique_ptr<TensorAccess> access_;
};

TEST_F(FoundBuffers, AreFoundAgainWhereOnlyValuesChange) {
  const std::vector<TensorView> before(access_->views().begin(), access_->views().end());
  Buffer("plain").fill_(5);
  Buffer("square").copy_(torch::tensor({{1., 2.}, {3., 4.}}));
  Buffer("plain").requires_grad_();
  Buffer("excluded") = torch::zeros({9});  // was not looked at
  ASSERT_TRUE(access_->Renew());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(access_->views()[i].spec, before[i].spec);
    EXPECT_EQ(access_->views()[i].data, before[i].data);
  }
  EXPECT_EQ(access_->views()[0].data, Buffer("plain").const_data_ptr());
  // A copy that was staged is as new.
  const auto* staged = reinterpret_cast<const float*>(access_->views()[1].data);
  EXPECT_THAT(std::span(staged, 4), ElementsAre(1, 2, 3, 4));
}

TEST_F(FoundBuffers, AreFoundAgainInAndOutOfInferenceMode) {
  {
    const c10::InferenceMode mode;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(access_, model_.Buffers(All));
  }
  for (const bool inside : {false, true, false}) {
    const c10::InferenceMode mode(inside);
    Buffer("square").fill_(inside ? 2 : 3);
    ASSERT_TRUE(access_->Renew());
    EXPECT_EQ(*reinterpret_cast<const float*>(access_->views()[1].data), inside ? 2 : 3);
    LOCKSTEP_EXPECT_OK(access_->WriteBack(std::vector<std::size_t>{0, 1, 2, 3}));
  }
}

TEST_F(FoundBuffers, MustBeFoundAnewWhereABufferIsReplaced) {
  Buffer("plain") = Buffer("plain").clone();
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereABufferIsReplacedByAViewOfItself) {
  Buffer("plain") = Buffer("plain").view({4});
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereASecondNameLeadsElsewhere) {
  Buffer("alias") = torch::ones({4});
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereABufferIsGone) {
  Buffer("complex") = torch::Tensor();
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereTheLastBufferIsGone) {
  module_.unregister_module("child");
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereABufferIsAdded) {
  child_->register_buffer("late", torch::ones({2}));
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereAModuleIsRenamed) {
  module_.unregister_module("child");
  module_.register_module("other", child_);
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereABufferHasOtherMemory) {
  Buffer("plain").set_data(torch::ones({4}));
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereABufferIsResized) {
  Buffer("plain").resize_({2});
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereABufferIsReshapedInPlace) {
  Buffer("plain").unsqueeze_(0);
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereABufferIsConvertedInItsMemory) {
  Buffer("plain").set_data(Buffer("plain").detach().view(torch::kInt));
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereABufferIsTransposedInPlace) {
  Buffer("square").t_();
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereABufferIsConjugated) {
  Buffer("complex")._set_conj(true);
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereMemoryWouldBeCopiedOnWrite) {
  const at::Tensor lazy = at::_lazy_clone(Buffer("plain"));
  EXPECT_FALSE(access_->Renew());
  EXPECT_NE(lazy.const_data_ptr(), Buffer("plain").const_data_ptr());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereABufferLosesItsMemory) {
  Buffer("plain").storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr());
  EXPECT_FALSE(access_->Renew());
}
TEST_F(FoundBuffers, MustBeFoundAnewWhereThereAreNone) {
  for (const std::string name : {"plain", "square", "complex", "alias", "excluded"}) {
    Buffer(name) = torch::Tensor();
  }
  module_.unregister_module("child");
  EXPECT_FALSE(access_->Renew());
}

TEST_F(FoundBuffers, AreNotKeptAlive) {
  const c10::weak_intrusive_ptr<c10::StorageImpl> storage(
      Buffer("plain").storage().getWeakStorageImpl());
  Buffer("plain") = Buffer("alias") = torch::ones({4});
  EXPECT_TRUE(storage.expired());
  EXPECT_FALSE(access_->Renew());
}

TEST(Buffers, OfAScriptModuleMustBeFoundAnewWhereAnAttributeOrModuleIsReplaced) {
  const auto make_inner = [] {
    torch::jit::Module inner("inner");
    inner.register_buffer("mean", torch::zeros({2}));
    return inner;
  };
  torch::jit::Module module("outer");
  module.register_module("inner", make_inner());
  module.register_buffer("top", torch::zeros({2}));
  module.register_attribute("plain", c10::TensorType::get(), torch::zeros({9}));
  ModuleModel model(TensorsOf(module));
  const std::vector<std::function<void()>> changes = {
      [&] { module.setattr("top", torch::ones({2})); },
      [&] { module.attr("inner").toModule().setattr("mean", torch::ones({2})); },
      [&] { module.register_buffer("late", torch::zeros({2})); }};
  for (const auto& change : changes) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model.Buffers(All));
    module.setattr("plain", torch::ones({9}));
    EXPECT_TRUE(access->Renew());
    change();
    EXPECT_FALSE(access->Renew());
  }
}

TEST(FrozenParameters, MustBeFoundAnewWhereOneIsFrozen) {
  Net net;
  ModuleModel model(TensorsOf(*net));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model.FrozenParameters());
  EXPECT_TRUE(access->Renew());
  net->scale.requires_grad_(false);
  EXPECT_FALSE(access->Renew());
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
  LOCKSTEP_ASSERT_OK(model_.Adopt(plan_, MemoryOf(plan_, parameters_, gradients_), InitialValues::kDiscard));
  EXPECT_TRUE(torch::equal(net_->scale, torch::full({3}, 0.25)));
}

TEST_F(AdoptedNet, WhatWasToBeDiscardedIsThereAgainIfItIsReleasedUnsettled) {
  model_.Release();
  const torch::Tensor own = net_->scale.detach().clone();
  const torch::Tensor linear = net_->inner[0]->as<torch::nn::Linear>()->weight.detach().clone();
  for (const bool settled : {false, true}) {
    std::fill(parameters_.begin(), parameters_.end(), 0.25f);
    LOCKSTEP_ASSERT_OK(
        model_.Adopt(plan_, MemoryOf(plan_, parameters_, gradients_), InitialValues::kDiscard));
    if (settled) model_.Settle();
    model_.Release();
    std::fill(parameters_.begin(), parameters_.end(), -1.0f);
    EXPECT_TRUE(torch::equal(net_->scale, settled ? torch::full({3}, 0.25) : own));
    EXPECT_TRUE(net_->scale.requires_grad());
    if (!settled) {
      EXPECT_TRUE(torch::equal(net_->inner[0]->as<torch::nn::Linear>()->weight, linear));
    }
  }
}

TEST_F(AdoptedNet, BackwardMovesGradientsIntoTheArenaAndAddsToThemThere) {
  Net twin;
  for (int pass = 0; pass < 2; ++pass) {
    net_->forward(SomeInput()).sum().backward();
    twin->forward(SomeInput()).sum().backward();
    EXPECT_EQ(net_->scale.grad().const_data_ptr(), Part(gradients_, "scale").data());
    EXPECT_TRUE(torch::equal(Gradient("scale"), twin->scale.grad()));
    EXPECT_TRUE(torch::equal(Gradient("conv.weight"), twin->conv->weight.grad().flatten()));
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound bound, model_.CollectGradients());
  EXPECT_TRUE(torch::equal(Gradient("scale"), twin->scale.grad()));
  float largest = 0;
  for (const torch::Tensor& parameter : twin->parameters()) {
    if (!parameter.grad().defined()) continue;
    largest = std::max(largest, parameter.grad().abs().max().item<float>());
  }
  EXPECT_EQ(bound.largest, largest);
  EXPECT_EQ(bound.not_finite, kAllFinite);
}

TEST_F(AdoptedNet, AfterAStepParametersHaveNoGradientsAndTheNextBackwardStartsAnew) {
  net_->forward(SomeInput()).sum().backward();
  const torch::Tensor once = Gradient("scale").clone();
  LOCKSTEP_ASSERT_OK(model_.CollectGradients().status());
  model_.ClearGradients();
  EXPECT_FALSE(net_->scale.grad().defined());
  net_->forward(SomeInput()).sum().backward();
  LOCKSTEP_ASSERT_OK(model_.CollectGradients().status());
  EXPECT_TRUE(torch::equal(Gradient("scale"), once));
  // Without a backward there is nothing.
  model_.ClearGradients();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound bound, model_.CollectGradients());
  EXPECT_EQ(bound.largest, 0);
  EXPECT_TRUE(torch::equal(Gradient("scale"), torch::zeros({3})));
}

TEST_F(AdoptedNet, GradientsThatWereSetToNoneOrReplacedAreTakenIn) {
  net_->forward(SomeInput()).sum().backward();
  net_->zero_grad(/*set_to_none=*/true);
  net_->scale.mutable_grad() = torch::full({3}, 2.0);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound bound, model_.CollectGradients());
  EXPECT_EQ(bound.largest, 2);
  EXPECT_TRUE(torch::equal(Gradient("scale"), torch::full({3}, 2.0)));
  EXPECT_EQ(net_->scale.grad().const_data_ptr(), Part(gradients_, "scale").data());
  EXPECT_EQ(Gradient("conv.weight").abs().sum().item<float>(), 0);
  EXPECT_FALSE(net_->conv->weight.grad().defined());
}

TEST_F(AdoptedNet, GradientsThatWereChangedInPlaceAreMeasuredAnew) {
  net_->forward(SomeInput()).sum().backward();
  for (const float value : {100.0f, -1000.0f}) {
    {
      const torch::NoGradGuard no_grad;
      net_->scale.mutable_grad()[1] = value;
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound bound, model_.CollectGradients());
    EXPECT_EQ(bound.largest, std::abs(value));
  }
}

TEST_F(AdoptedNet, AGradientThatIsNotFiniteIsNamedByItsPlace) {
  net_->forward(SomeInput()).sum().backward();
  const torch::NoGradGuard no_grad;
  net_->scale.mutable_grad()[2] = std::nan("");
  net_->conv->weight.mutable_grad().fill_(std::numeric_limits<float>::infinity());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound bound, model_.CollectGradients());
  EXPECT_TRUE(std::isinf(bound.largest));
  ASSERT_NE(bound.not_finite, kAllFinite);
  const std::string first = plan_.placements[bound.not_finite].name;
  EXPECT_EQ(first, plan_.placements[0].name == "scale" ? "scale" : "conv.weight");
}

TEST_F(AdoptedNet, AGradientWithAGraphOfItsOwnKeepsItUntilItIsCollected) {
  const torch::Tensor loss = (net_->scale * net_->scale).sum();
  loss.backward({}, /*retain_graph=*/c10::nullopt, /*create_graph=*/true);
  const torch::Tensor grad = net_->scale.grad();
  EXPECT_TRUE(grad.requires_grad());
  EXPECT_TRUE(torch::equal(torch::autograd::grad({grad.sum()}, {net_->scale})[0],
                           torch::full({3}, 2.0)));
  LOCKSTEP_ASSERT_OK(model_.CollectGradients().status());
  EXPECT_TRUE(torch::equal(Gradient("scale"), grad.detach()));
}

TEST_F(AdoptedNet, WhatTrainingCodeAttachedToAGradientGoesFirst) {
  model_.Release();
  struct Doubling final : torch::autograd::PostAccumulateGradHook {
    void operator()(const torch::Tensor& parameter) override {
      const torch::NoGradGuard no_grad;
      parameter.mutable_grad().mul_(2);
    }
  };
  torch::autograd::impl::set_post_acc_grad_hooks(net_->scale, std::make_unique<Doubling>());
  LOCKSTEP_ASSERT_OK(
      model_.Adopt(plan_, MemoryOf(plan_, parameters_, gradients_), InitialValues::kCopyIn));
  net_->scale.sum().backward();
  EXPECT_TRUE(torch::equal(Gradient("scale"), torch::full({3}, 2.0)));
  model_.Release();
  net_->scale.sum().backward();
  EXPECT_TRUE(torch::equal(net_->scale.grad(), torch::full({3}, 2.0)));
}

TEST_F(AdoptedNet, ASparseGradientIsTakenIn) {
  net_->scale.mutable_grad() = torch::tensor({0.0f, 3.0f, 0.0f}).to_sparse();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound bound, model_.CollectGradients());
  EXPECT_EQ(bound.largest, 3);
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
  const std::vector<float> before = gradients_;
  net_->forward(SomeInput()).sum().backward();
  EXPECT_EQ(gradients_, before);
}

// An owner keeps the sums of its shard where its own gradients were.
TEST_F(AdoptedNet, WhatAStepLeftInTheArenaIsNoGradientOfTheNext) {
  for (int step = 0; step < 3; ++step) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound bound, model_.CollectGradients());
    EXPECT_EQ(bound.largest, 0);
    EXPECT_TRUE(torch::equal(Gradient("scale"), torch::zeros({3}))) << step;
    std::ranges::fill(Part(gradients_, "scale"), 5.0f);
    model_.ClearGradients();
  }
}

// LibTorch's own clip_grad_value_() writes through data(), which counts no versions.
TEST_F(AdoptedNet, AGradientThatWasMadeFiniteByClippingIsFinite) {
  (net_->scale * std::numeric_limits<float>::infinity()).sum().backward();
  torch::nn::utils::clip_grad_value_(net_->parameters(), 0.5);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const GradientBound bound, model_.CollectGradients());
  EXPECT_EQ(bound.largest, 0.5f);
  EXPECT_EQ(bound.not_finite, kAllFinite);
}

TEST_F(AdoptedNet, ReleaseInInferenceModeLeavesWhatCanBeTrained) {
  {
    const c10::InferenceMode inference;
    model_.Release();
  }
  EXPECT_FALSE(net_->scale.is_inference());
  net_->forward(SomeInput()).sum().backward();
  EXPECT_TRUE(net_->scale.grad().defined());
}

// As when a session is replaced by the next one: session = Session::Join(...).
TEST_F(AdoptedNet, AModelThatAdoptedBeforeAnotherReleasedKeepsItsGradients) {
  ModuleModel next(TensorsOf(*net_));
  std::vector<float> parameters(plan_.flat_elements);
  std::vector<float> gradients(plan_.flat_elements);
  LOCKSTEP_ASSERT_OK(
      next.Adopt(plan_, MemoryOf(plan_, parameters, gradients), InitialValues::kCopyIn));
  model_.Release();
  const std::vector<float> before = gradients_;
  net_->forward(SomeInput()).sum().backward();
  EXPECT_EQ(gradients_, before);
  EXPECT_EQ(net_->scale.grad().const_data_ptr(), Part(gradients, "scale").data());
  next.Release();
  const std::vector<float> after = gradients;
  net_->zero_grad();
  net_->forward(SomeInput()).sum().backward();
  EXPECT_EQ(gradients_, before);
  EXPECT_EQ(gradients, after);
}

TEST_F(AdoptedNet, AdoptingTwiceIsRefused) {
  EXPECT_THAT(model_.Adopt(plan_, MemoryOf(plan_, parameters_, gradients_), InitialValues::kCopyIn),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(Adopt, OneOfTwoNamesThatLaterLeadsElsewhereIsAnErrorWithTheName) {
  const torch::Tensor tied = torch::ones({3}).requires_grad_();
  for (const std::size_t untied : {0, 1}) {
    auto listed = std::make_unique<ListedTensors>();
    listed->parameters = {{"encoder.weight", tied}, {"decoder.weight", tied}};
    std::vector<NamedTensor>& now = listed->parameters;
    ModuleModel model(std::move(listed));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest, model.Describe());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(manifest, 1));
    std::vector<float> parameters(plan.flat_elements);
    std::vector<float> gradients(plan.flat_elements);
    LOCKSTEP_ASSERT_OK(
        model.Adopt(plan, MemoryOf(plan, parameters, gradients), InitialValues::kCopyIn));
    LOCKSTEP_ASSERT_OK(model.CollectGradients().status());
    now[untied].tensor = torch::ones({3}).requires_grad_();
    EXPECT_THAT(model.CollectGradients(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                   HasSubstr("'" + now[untied].name + "'")));
  }
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
  EXPECT_THAT(model.Adopt(plan, MemoryOf(plan, parameters, gradients), InitialValues::kCopyIn),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("inner.0.bias")));
  EXPECT_EQ(net->scale.const_data_ptr(), before);
  EXPECT_FALSE(net->scale.grad().defined());
}

TEST(Script, BuffersOfNestedModulesHaveFullNamesAndPlainAttributesAreLeftAlone) {
  torch::jit::Module block("block");
  block.register_buffer("mean", torch::zeros({2}));
  block.register_attribute("cache", c10::TensorType::get(), torch::zeros({9}));
  block.register_attribute("count", c10::IntType::get(), 3);
  torch::jit::Module middle("middle");
  middle.register_module("block", block);
  torch::jit::Module module("outer");
  module.register_module("middle", middle);
  module.register_buffer("top", torch::zeros({2}));
  ModuleModel model(TensorsOf(module));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest, model.Describe());
  EXPECT_THAT(manifest.buffers,
              ElementsAre(TensorSpec{"middle.block.mean", DType::kFloat32, {2}},
                          TensorSpec{"top", DType::kFloat32, {2}}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model.Buffers(All));
  EXPECT_THAT(NamesOf(*access), ElementsAre("middle.block.mean", "top"));
}

// `net` with `second` attached to it under `prefix`.
absl::StatusOr<std::unique_ptr<NamedTensors>> Attached(Net& net, std::string prefix,
                                                       torch::nn::Module& second) {
  std::vector<Attachment> attached;
  attached.push_back({std::move(prefix), TensorsOf(second)});
  return Attach(TensorsOf(*net), std::move(attached));
}

TEST(Attach, AllTensorsOfASecondModuleAreBuffersUnderItsPrefix) {
  Net net;
  torch::nn::BatchNorm1d ema(3);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto tensors, Attached(net, "copies.ema", *ema));
  ModuleModel model(std::move(tensors));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest, model.Describe());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest alone, ModuleModel(TensorsOf(*net)).Describe());
  EXPECT_EQ(manifest.parameters, alone.parameters);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto access,
      model.Buffers([](absl::string_view name) { return name.substr(0, 4) != "norm"; }));
  EXPECT_THAT(NamesOf(*access),
              ElementsAre("copies.ema.weight", "copies.ema.bias", "copies.ema.running_mean",
                          "copies.ema.running_var", "copies.ema.num_batches_tracked"));
  EXPECT_EQ(access->views()[0].data, ema->weight.data_ptr());
}

TEST(Attach, AChangeInTheSecondModuleIsFound) {
  Net net;
  torch::nn::BatchNorm1d ema(3);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto tensors, Attached(net, "ema", *ema));
  ModuleModel model(std::move(tensors));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model.Buffers(All));
  EXPECT_TRUE(access->Renew());
  ema->bias.set_data(torch::ones({3}));
  EXPECT_FALSE(access->Renew());
}

TEST(Attach, TheSameBufferInBothModulesTakesPartOnceUnderItsFirstName) {
  Net net;
  torch::nn::Module second("second");
  second.register_buffer("mean", net->norm->running_mean);
  second.register_parameter("bias", net->conv->bias, /*requires_grad=*/false);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto tensors, Attached(net, "ema", second));
  ModuleModel model(std::move(tensors));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto access, model.Buffers(All));
  EXPECT_THAT(NamesOf(*access), ElementsAre("norm.running_mean", "norm.running_var",
                                            "norm.num_batches_tracked", "ema.bias"));
}

TEST(Attach, ATrainableParameterOfTheFirstModuleIsRefusedByName) {
  Net net;
  torch::nn::Module second("second");
  second.register_parameter("shared", net->scale);
  EXPECT_THAT(Attached(net, "ema", second),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'ema.shared'"), HasSubstr("parameter 'scale'"))));
  // A tensor of its own over the same memory would lose it when the other one moves.
  torch::nn::Module third("third");
  third.register_buffer("row", net->conv->weight.detach().select(0, 0));
  EXPECT_THAT(Attached(net, "ema", third),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'conv.weight'")));
}

TEST(Attach, BadPrefixesAndNamesThatAreTakenAreRefused) {
  Net net;
  torch::nn::Linear second(2, 2);
  for (const std::string prefix : {"", ".", ".ema", "ema.", "a..b", "e\nma", "\xff"}) {
    EXPECT_THAT(Attached(net, prefix, *second),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("prefix '")));
  }
  EXPECT_THAT(Attached(net, "inner.0", *second),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'inner.0.weight'")));
  std::vector<Attachment> twice;
  twice.push_back({"ema", TensorsOf(*second)});
  twice.push_back({"ema", TensorsOf(*second)});
  EXPECT_THAT(Attach(TensorsOf(*net), std::move(twice)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'ema.weight'")));
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
  LOCKSTEP_ASSERT_OK(model.Adopt(plan, MemoryOf(plan, parameters, gradients), InitialValues::kCopyIn));
  module.forward({torch::full({3}, 2.0)}).toTensor().backward();
  LOCKSTEP_ASSERT_OK(model.CollectGradients().status());
  EXPECT_THAT(std::span(gradients).first(3), ElementsAre(2, 2, 2));
  parameters[0] = 10;
  EXPECT_EQ(module.forward({torch::full({3}, 2.0)}).toTensor().item<float>(), 24);
}

}  // namespace
}  // namespace lockstep
