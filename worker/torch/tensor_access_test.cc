#include "worker/torch/tensor_access.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "c10/core/Allocator.h"
#include "c10/core/InferenceMode.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Bytes = std::vector<std::byte>;

TensorWalk WalkThrough(std::vector<NamedTensor> tensors) {
  return [tensors = std::move(tensors)](NamedTensors::Visit visit) {
    return std::ranges::all_of(
        tensors, [&](const NamedTensor& named) { return visit(named.name, named.tensor); });
  };
}

bool All(absl::string_view) { return true; }

std::unique_ptr<TensorAccess> Access(const std::vector<NamedTensor>& tensors) {
  auto access = AccessTensors("buffer", WalkThrough(tensors), All);
  EXPECT_THAT(access, IsOk());
  return access.ok() ? *std::move(access) : nullptr;
}
std::unique_ptr<TensorAccess> Access(const at::Tensor& tensor) {
  return Access({{"buffer", tensor}});
}

std::vector<std::string> NamesOf(const TensorAccess& access) {
  std::vector<std::string> names;
  for (const TensorView& view : access.views()) names.push_back(view.spec.name);
  return names;
}

Bytes BytesOf(const TensorView& view) { return Bytes(view.data, view.data + view.bytes()); }

absl::Status WriteBackAll(TensorAccess& access) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < access.views().size(); ++i) all.push_back(i);
  return access.WriteBack(all);
}

// What a sync does to `tensor`: it takes the values of `values`, in the order of
// their indices.
absl::Status Sync(const at::Tensor& tensor, const at::Tensor& values) {
  const auto access = Access(tensor);
  const at::Tensor source = values.to(tensor.scalar_type()).contiguous();
  EXPECT_EQ(static_cast<std::int64_t>(source.nbytes()), access->views()[0].bytes());
  std::memcpy(access->views()[0].data, source.const_data_ptr(), source.nbytes());
  return WriteBackAll(*access);
}

// 1, 2, ... in the shape of `tensor`.
at::Tensor CountLike(const at::Tensor& tensor) {
  return at::arange(1, tensor.numel() + 1, at::kFloat).reshape(tensor.sizes());
}

TEST(AccessTensors, EveryElementTypeMovesByteForByteInAnyLayout) {
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
  const std::vector<std::pair<std::string, std::function<at::Tensor(at::ScalarType)>>> layouts = {
      {"plain", [](auto type) { return at::empty({3, 40}, type); }},
      {"strided", [](auto type) { return at::empty({3, 80}, type).slice(1, 0, 80, 2); }},
      {"transposed", [](auto type) { return at::empty({40, 3}, type).t(); }},
      {"expanded", [](auto type) { return at::empty({40}, type).expand({3, 40}); }},
  };
  Prng prng(1);
  for (const auto& [type, dtype] : types) {
    for (const auto& [layout, make] : layouts) {
      const at::Tensor tensor = make(type);
      const auto access = Access(tensor);
      const TensorView& view = access->views()[0];
      EXPECT_EQ(view.spec.dtype, dtype);
      ASSERT_EQ(view.bytes(), static_cast<std::int64_t>(120 * tensor.element_size()));
      EXPECT_EQ(view.data == tensor.const_data_ptr(), layout == "plain");
      // Also not-a-numbers with whatever in them; three equal rows.
      const std::int64_t row = view.bytes() / 3;
      for (std::int64_t i = 0; i < view.bytes(); ++i) {
        view.data[i] = i < row ? std::byte(prng.Next() % (type == at::kBool ? 2 : 256))
                               : view.data[i - row];
      }
      const Bytes sent = BytesOf(view);
      LOCKSTEP_ASSERT_OK(WriteBackAll(*access));
      EXPECT_EQ(BytesOf(Access(tensor)->views()[0]), sent) << c10::toString(type) << " " << layout;
    }
  }
}

TEST(AccessTensors, AnyLayoutIsWrittenInPlace) {
  const at::Tensor base = at::zeros({4, 6});  // of two tensors that share no element
  const std::vector<NamedTensor> tensors = {
      {"transposed", at::zeros({2, 3}).t()},
      {"channels_last", at::zeros({2, 3, 4, 5}).to(at::MemoryFormat::ChannelsLast)},
      {"column", base.select(1, 2)},
      {"block", base.slice(0, 0, 4, 2).slice(1, 3, 6)},
      {"conjugate", at::zeros({3}, at::kComplexFloat).conj()},
      {"negative", at::imag(at::zeros({3}, at::kComplexFloat).conj())},
      {"scalar", at::zeros({}, at::kLong)},
      {"one", at::zeros({1}).expand({1, 1})},
      {"rows", at::zeros({3, 1, 2}).expand({3, 1, 2})},
  };
  for (const auto& [name, tensor] : tensors) {
    const auto strides = tensor.strides().vec();
    const void* memory = tensor.const_data_ptr();
    LOCKSTEP_ASSERT_OK(Sync(tensor, CountLike(tensor)));
    EXPECT_EQ(tensor.strides().vec(), strides) << name;
    EXPECT_EQ(tensor.const_data_ptr(), memory) << name;
    EXPECT_TRUE(at::equal(tensor, CountLike(tensor).to(tensor.scalar_type()))) << name;
  }
  EXPECT_TRUE(tensors[4].tensor.is_conj());
  EXPECT_TRUE(tensors[5].tensor.is_neg());
  EXPECT_EQ(base.select(1, 1).abs().sum().item<float>(), 0);
}

// pytorch#68407: what moves is the order of indices, not of memory.
TEST(AccessTensors, RanksMayHoldATensorInDifferentStrides) {
  const at::Tensor plain = CountLike(at::empty({2, 3, 4, 5}));
  const at::Tensor channels_last =
      at::zeros({2, 3, 4, 5}).to(at::MemoryFormat::ChannelsLast);
  const at::Tensor transposed = at::zeros({5, 4, 3, 2}).permute({3, 2, 1, 0});
  const auto sent = Access(plain);
  for (const at::Tensor& tensor : {channels_last, transposed}) {
    const auto received = Access(tensor);
    ASSERT_EQ(received->views()[0].spec, sent->views()[0].spec);
    std::memcpy(received->views()[0].data, sent->views()[0].data, sent->views()[0].bytes());
    LOCKSTEP_ASSERT_OK(WriteBackAll(*received));
    EXPECT_TRUE(at::equal(tensor, plain));
    EXPECT_EQ(BytesOf(Access(tensor)->views()[0]), BytesOf(sent->views()[0]));
  }
  EXPECT_TRUE(channels_last.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(AccessTensors, EmptyTensorsTakePart) {
  const auto access = Access({{"empty", at::zeros({0, 3})},
                              {"transposed", at::zeros({2, 0}).t()},
                              {"expanded", at::zeros({1, 0}).expand({4, 0})}});
  EXPECT_THAT(NamesOf(*access), ElementsAre("empty", "transposed", "expanded"));
  for (const TensorView& view : access->views()) EXPECT_EQ(view.bytes(), 0);
  LOCKSTEP_EXPECT_OK(WriteBackAll(*access));
}

TEST(AccessTensors, OnlyWhatWasWrittenIsWrittenBack) {
  const std::vector<at::Tensor> tensors = {at::zeros({2, 3}).t(), at::zeros({2, 3}).t(),
                                           at::zeros({2}), at::zeros({2})};
  std::vector<std::int64_t> versions;  // counts the writes that autograd sees
  for (const at::Tensor& tensor : tensors) versions.push_back(tensor._version());
  const auto access =
      Access({{"0", tensors[0]}, {"1", tensors[1]}, {"2", tensors[2]}, {"3", tensors[3]}});
  for (const TensorView& view : access->views()) std::memset(view.data, 1, view.bytes());
  LOCKSTEP_ASSERT_OK(access->WriteBack(std::vector<std::size_t>{0, 2}));
  EXPECT_NE(tensors[0].sum().item<float>(), 0);
  EXPECT_EQ(tensors[1].abs().sum().item<float>(), 0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i]._version() - versions[i], i % 2 == 0 ? 1 : 0) << i;
  }
}

TEST(AccessTensors, AnExpandedTensorTakesEqualValues) {
  const at::Tensor base = at::zeros({3, 1, 2});
  const at::Tensor expanded = base.expand({3, 4, 2}).permute({2, 1, 0});
  EXPECT_EQ(Access(expanded)->views()[0].spec.ToString(), "float32[2, 4, 3]");
  const at::Tensor values = CountLike(base).expand({3, 4, 2}).permute({2, 1, 0});
  LOCKSTEP_ASSERT_OK(Sync(expanded, values));
  EXPECT_TRUE(at::equal(base, CountLike(base)));
  EXPECT_TRUE(at::equal(expanded, values));
  EXPECT_EQ(expanded.stride(1), 0);

  const at::Tensor scalar = at::zeros({});
  LOCKSTEP_ASSERT_OK(Sync(scalar.expand({2, 2}), at::full({2, 2}, 7)));
  EXPECT_EQ(scalar.item<float>(), 7);
}

TEST(AccessTensors, AnExpandedTensorRefusesDifferentValuesAndNothingIsWritten) {
  const at::Tensor other = at::zeros({2, 3}).t();
  const at::Tensor expanded = at::zeros({2, 1}).expand({2, 3});
  const auto access = Access({{"other", other}, {"bn.mean", expanded}});
  for (const TensorView& view : access->views()) {
    for (std::int64_t i = 0; i < view.bytes(); ++i) view.data[i] = std::byte(i / 4);
  }
  EXPECT_THAT(WriteBackAll(*access),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("buffer 'bn.mean'"), HasSubstr("make it contiguous()"))));
  EXPECT_EQ(other.abs().sum().item<float>(), 0);
  EXPECT_EQ(expanded.abs().sum().item<float>(), 0);
  LOCKSTEP_EXPECT_OK(access->WriteBack(std::vector<std::size_t>{0}));
}

TEST(AccessTensors, OtherOverlapIsRefusedByName) {
  for (const at::Tensor& tensor :
       {at::ones({4}).unfold(0, 2, 1), at::ones({4}).as_strided({2, 3}, {1, 1}),
        at::ones({4}).unfold(0, 2, 1).unsqueeze(0).expand({5, 3, 2})}) {
    EXPECT_THAT(AccessTensors("buffer", WalkThrough({{"window", tensor}}), All),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("buffer 'window'"), HasSubstr("overlap"))));
  }
}

TEST(AccessTensors, ATensorWithTwoNamesAppearsOnceAndAnotherViewIsItsOwn) {
  const at::Tensor shared = at::zeros({4});
  const std::vector<NamedTensor> tensors = {
      {"a", shared},
      {"b", shared},
      {"c", shared.view({4})},
      {"d", shared.view({2, 2})},
      {"e", shared.slice(0, 0, 2)},
      {"f", shared.view({2, 2}).t()},
      {"g", shared.as_strided({4, 1}, {1, 1})},
      {"h", shared.as_strided({4, 1}, {1, 9})},  // the stride of one element says nothing
  };
  EXPECT_THAT(NamesOf(*Access(tensors)), ElementsAre("a", "d", "e", "f", "g"));
  EXPECT_THAT(NamesOf(*Access({tensors.begin() + 1, tensors.end()})),
              ElementsAre("b", "d", "e", "f", "g"));
}

TEST(AccessTensors, ViewsOfOneMemoryRefuseDifferentValuesByName) {
  const auto fill = [](const TensorView& view, float value) {
    for (std::int64_t i = 0; i < view.spec.elements(); ++i) {
      std::memcpy(view.data + i * sizeof(value), &value, sizeof(value));
    }
  };
  const at::Tensor table = at::zeros({4});
  for (const at::Tensor& other :
       {table.view({2, 2}), table.view({2, 2}).t(), table.slice(0, 1, 3),
        table.slice(0, 0, 4, 2)}) {
    const auto refused = [](const std::string& name) {
      return StatusIs(absl::StatusCode::kInvalidArgument,
                      AllOf(HasSubstr("buffer '" + name + "'"), HasSubstr("shares memory")));
    };
    table.zero_();
    const auto access = Access({{"table", table}, {"other", other}});
    fill(access->views()[0], 1);
    fill(access->views()[1], 1);
    LOCKSTEP_EXPECT_OK(WriteBackAll(*access));
    fill(access->views()[1], 2);
    EXPECT_THAT(WriteBackAll(*access), refused("table"));
    // Also where this rank, as the root of the other, does not write that.
    const std::vector<std::size_t> first = {0};
    fill(access->views()[0], 3);
    EXPECT_THAT(access->WriteBack(first), refused("other"));
  }
}

TEST(AccessTensors, InterleavedViewsOfOneMemoryHoldDifferentValues) {
  const at::Tensor table = at::zeros({2, 2});
  const auto access = Access({{"left", table.select(1, 0)}, {"right", table.select(1, 1)}});
  const float values[] = {1, 2, 3, 4};
  std::memcpy(access->views()[0].data, values, 8);
  std::memcpy(access->views()[1].data, values + 2, 8);
  LOCKSTEP_EXPECT_OK(WriteBackAll(*access));
  EXPECT_TRUE(at::equal(table, at::tensor({1.f, 3.f, 2.f, 4.f}).view({2, 2})));
}

TEST(AccessTensors, ACopyThatIsMadeOnWriteIsATensorOfItsOwn) {
  const at::Tensor tensor = at::zeros({2});
  const at::Tensor lazy = at::_lazy_clone(tensor);
  const auto access = Access({{"a", tensor}, {"b", lazy}, {"c", tensor}, {"d", lazy}});
  EXPECT_THAT(NamesOf(*access), ElementsAre("a", "b"));
  EXPECT_NE(access->views()[0].data, access->views()[1].data);
}

// Tensors that LibTorch follows: a leaf that requires a gradient, and results of
// operations, some of them views.
class Followed : public testing::TestWithParam<bool> {
 protected:
  // Staged or viewed in place.
  at::Tensor Make() const {
    return GetParam() ? at::ones({3, 2}).t() : at::ones({2, 3});
  }
};

INSTANTIATE_TEST_SUITE_P(Layouts, Followed, testing::Bool(),
                         [](const auto& info) { return info.param ? "staged" : "in_place"; });

TEST_P(Followed, ALeafThatRequiresAGradientStaysOne) {
  const at::Tensor leaf = Make().requires_grad_();
  LOCKSTEP_ASSERT_OK(Sync(leaf, CountLike(leaf)));
  EXPECT_TRUE(leaf.requires_grad());
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_FALSE(leaf.grad().defined());
  EXPECT_TRUE(at::equal(leaf.detach(), CountLike(leaf)));
  (leaf * leaf).sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad(), 2 * CountLike(leaf)));
}

TEST_P(Followed, AResultKeepsItsHistory) {
  const at::Tensor leaf = at::ones({2, 3}).requires_grad_();
  const at::Tensor result = GetParam() ? (leaf * 3).t() : leaf * 3;
  LOCKSTEP_ASSERT_OK(Sync(result, CountLike(result)));
  EXPECT_FALSE(result.is_leaf());
  EXPECT_TRUE(at::equal(result.detach(), CountLike(result)));
  // The values are new; the gradient is that of what made the old ones.
  result.sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad(), at::full({2, 3}, 3)));
}

TEST_P(Followed, APartOfAnUnbindIsWritten) {
  const at::Tensor leaf = at::ones({2, 2, 3}).requires_grad_();
  const std::vector<at::Tensor> parts = GetParam() ? leaf.unbind(2) : leaf.unbind(0);
  LOCKSTEP_ASSERT_OK(Sync(parts[1], CountLike(parts[1])));
  EXPECT_TRUE(at::equal(parts[1].detach(), CountLike(parts[1])));
  EXPECT_TRUE(at::equal(parts[0].detach(), at::ones_like(parts[0])));
}

TEST_P(Followed, AGraphThatSavedATensorRefusesToUseItAfterASync) {
  const at::Tensor buffer = Make();
  const at::Tensor weight = at::ones({2, 3}).requires_grad_();
  const at::Tensor loss = (weight * buffer).sum();
  LOCKSTEP_ASSERT_OK(Sync(buffer, CountLike(buffer)));
  EXPECT_THROW(loss.backward(), c10::Error);
  // And a graph made afterwards is none the worse for it.
  (weight * buffer).sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), buffer));
}

TEST_P(Followed, InferenceTensorsTakePartInsideAndOutsideOfInferenceMode) {
  for (const bool inside : {false, true}) {
    at::Tensor tensor;
    at::Tensor expanded;
    {
      const c10::InferenceMode inference;
      tensor = Make();
      expanded = at::zeros({2, 1}).expand({2, 3});
    }
    const at::Tensor normal = Make();
    std::optional<c10::InferenceMode> inference;
    if (inside) inference.emplace();
    LOCKSTEP_ASSERT_OK(Sync(tensor, CountLike(tensor)));
    LOCKSTEP_ASSERT_OK(Sync(expanded, at::ones({2, 3})));
    LOCKSTEP_ASSERT_OK(Sync(normal, CountLike(normal)));
    EXPECT_TRUE(tensor.is_inference());
    EXPECT_FALSE(normal.is_inference());
    EXPECT_TRUE(at::equal(tensor, CountLike(tensor)));
    EXPECT_TRUE(at::equal(expanded, at::ones({2, 3})));
    EXPECT_TRUE(at::equal(normal, CountLike(normal)));
  }
}

TEST(DescribeTensor, TensorsWithoutPlainValuesAreRefusedByName) {
  const at::Tensor no_memory = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::GetAllocator(c10::kCPU), true),
      c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>());
  no_memory.unsafeGetTensorImpl()->set_sizes_contiguous({2});
  const std::vector<std::pair<at::Tensor, std::string>> unfit = {
      {at::Tensor(), "undefined"},
      {at::ones({2}, at::kMeta), "meta"},
      {at::ones({2, 2}).to_sparse(), "sparse"},
      {at::ones({2, 2}).to_sparse_csr(), "sparse"},
      {at::ones({2, 2}).to_mkldnn(), "to_dense()"},
      {at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8), "QInt8"},
      {no_memory, "no memory"},
      {at::_efficientzerotensor({2}, at::kFloat), "no memory"},
  };
  for (const auto& [tensor, why] : unfit) {
    const NamedTensor named = {"a.bad", tensor};
    EXPECT_EQ(SpecOf(named), TensorSpec{.name = "a.bad"}) << why;
    EXPECT_THAT(DescribeTensor("parameter", named),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("parameter 'a.bad'"), HasSubstr(why))));
    EXPECT_THAT(AccessTensors("buffer", WalkThrough({named}), All),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("buffer 'a.bad'"), HasSubstr("exclude it"))));
  }
}

}  // namespace
}  // namespace lockstep
