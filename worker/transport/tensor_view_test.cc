#include "worker/transport/tensor_view.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TensorView View(const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
  return {.spec = {.name = name, .dtype = dtype, .shape = std::move(shape)}};
}

std::string Describe(const std::vector<std::vector<TensorView>>& ranks) {
  std::vector<std::string> layouts;
  std::vector<std::string> members;
  for (const auto& views : ranks) {
    members.push_back("w" + std::to_string(layouts.size()));
    layouts.push_back(EncodeLayout(std::span<const TensorView>(views)));
  }
  return DescribeDisagreement(layouts, members);
}

const TensorView kMean = View("bn.running_mean", DType::kFloat32, {64});
const TensorView kVar = View("bn.running_var", DType::kFloat32, {64});
const TensorView kCount = View("bn.num_batches_tracked", DType::kInt64, {});

TEST(LayoutDigest, ChangesWithNameDTypeShapeCountAndOrder) {
  const std::vector<TensorView> views = {kMean, kVar};
  const std::uint64_t digest = LayoutDigest(views);
  EXPECT_EQ(LayoutDigest(std::vector<TensorView>{kMean, kVar}), digest);
  for (const std::vector<TensorView>& other : std::vector<std::vector<TensorView>>{
           {kVar, kMean},
           {kMean},
           {kMean, kVar, kCount},
           {kMean, View("bn.running_vat", DType::kFloat32, {64})},
           {kMean, View("bn.running_var", DType::kInt32, {64})},
           {kMean, View("bn.running_var", DType::kFloat32, {8, 8})},
           {kMean, View("bn.running_var", DType::kFloat32, {})}}) {
    EXPECT_NE(LayoutDigest(other), digest);
  }
}

TEST(LayoutDigest, DoesNotLookAtTheData) {
  std::vector<TensorView> views = {kMean};
  const std::uint64_t digest = LayoutDigest(views);
  std::byte somewhere[256] = {};
  views[0].data = somewhere;
  EXPECT_EQ(LayoutDigest(views), digest);
}

TEST(DescribeDisagreement, SaysNothingAboutEqualLayouts) {
  EXPECT_EQ(Describe({{kMean, kVar}, {kMean, kVar}}), "");
  EXPECT_EQ(Describe({{}, {}, {}}), "");
}

TEST(DescribeDisagreement, NamesTheTensorAndEachRanksView) {
  const TensorView shorter = View("bn.running_var", DType::kFloat32, {32});
  EXPECT_EQ(Describe({{kMean, kVar}, {kMean, shorter}}),
            "tensor 'bn.running_var': float32[64] on w0 (rank 0), float32[32] on w1 (rank 1)");
}

TEST(DescribeDisagreement, PutsRanksOfOneViewTogether) {
  const TensorView other = View("bn.running_mean", DType::kFloat64, {64});
  EXPECT_EQ(Describe({{kMean}, {other}, {kMean}, {kMean}}),
            "tensor 'bn.running_mean': float32[64] on w0 (rank 0), w2 (rank 2), w3 (rank 3), "
            "float64[64] on w1 (rank 1)");
}

TEST(DescribeDisagreement, SaysThatATensorIsAbsent) {
  EXPECT_EQ(Describe({{kMean, kVar}, {kVar}}),
            "tensor 'bn.running_mean': float32[64] on w0 (rank 0), absent on w1 (rank 1)");
  EXPECT_EQ(Describe({{kMean, kVar}, {kMean, kCount, kVar}, {kMean, kVar}}),
            "tensor 'bn.num_batches_tracked': absent on w0 (rank 0), w2 (rank 2), "
            "int64[] on w1 (rank 1)");
  EXPECT_EQ(Describe({{kMean}, {}}),
            "tensor 'bn.running_mean': float32[64] on w0 (rank 0), absent on w1 (rank 1)");
}

TEST(DescribeDisagreement, TellsAnotherOrderFromOtherTensors) {
  EXPECT_EQ(Describe({{kMean, kVar}, {kVar, kMean}}),
            "order of tensors, position 0: 'bn.running_mean' on w0 (rank 0), "
            "'bn.running_var' on w1 (rank 1)");
}

TEST(DescribeDisagreement, NamesAPeerWhoseBytesAreNoLayout) {
  EXPECT_THAT(DescribeDisagreement({"", "\xff\xff\xff\xff"}, {"w0", "w1"}),
              HasSubstr("w1 (rank 1) sent cannot be read"));
}

TEST(DescribeDisagreement, StaysShortForManyRanks) {
  std::vector<std::vector<TensorView>> ranks(50, {kMean});
  ranks[49] = {kVar};
  EXPECT_THAT(Describe(ranks), HasSubstr("and 44 more"));
  EXPECT_LT(Describe(ranks).size(), 300u);
}

}  // namespace
}  // namespace lockstep
