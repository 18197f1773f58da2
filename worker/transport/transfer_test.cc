#include "worker/transport/transfer.h"

#include <limits>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::byte memory[64];

TensorView View(DType dtype, std::vector<std::int64_t> shape = {4}) {
  return {.spec = {.name = "x", .dtype = dtype, .shape = std::move(shape)}, .data = memory};
}

TEST(MannerText, NamesTheRootTheOperationAndTheWeights) {
  EXPECT_EQ(MannerText({.root = 2}), "broadcast from rank 2");
  EXPECT_EQ(MannerText({.reduce = ReduceOp::kMin, .root = 2}), "min");
  EXPECT_EQ(MannerText({.reduce = ReduceOp::kMean, .weights = {32, 0, 0.1}}),
            "mean weighted by 32, 0, 0.1");
  // Neighbours are told apart.
  EXPECT_EQ(MannerText({.reduce = ReduceOp::kMean, .weights = {1, 1 + 0x1p-52}}),
            "mean weighted by 1, 1.0000000000000002");
}

TEST(MannerText, StaysShortForManyRanksAndStillTellsThemApart) {
  Transfer mean = {.reduce = ReduceOp::kMean, .weights = std::vector<double>(1000, 1)};
  const std::string text = MannerText(mean);
  EXPECT_LT(text.size(), 100u);
  EXPECT_THAT(text, HasSubstr("and 992 more"));
  mean.weights.back() = 2;
  EXPECT_NE(MannerText(mean), text);
}

TEST(TransferDigest, ChangesWithTheOperationTheRootAndTheWeights) {
  const std::vector<TensorView> views = {View(DType::kFloat32)};
  const std::vector<Transfer> all = {
      {.views = views},
      {.root = 1, .views = views},
      {.reduce = ReduceOp::kSum, .views = views},
      {.reduce = ReduceOp::kMin, .views = views},
      {.reduce = ReduceOp::kMean, .views = views},
      {.reduce = ReduceOp::kMean, .weights = {1, 1}, .views = views},
      {.reduce = ReduceOp::kMean, .weights = {1, 2}, .views = views},
      {.reduce = ReduceOp::kMean, .weights = {1, 1, 1}, .views = views},
      {.views = {}},
  };
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = 0; b < all.size(); ++b) {
      EXPECT_EQ(TransferDigest(all[a]) == TransferDigest(all[b]), a == b) << a << " " << b;
    }
  }
  // A reduction has no root.
  EXPECT_EQ(TransferDigest({.reduce = ReduceOp::kSum, .root = 3, .views = views}),
            TransferDigest(all[2]));
}

TEST(TransferDigest, IsTheSameWhereTheLayoutsDigestIsKnown) {
  const std::vector<TensorView> views = {View(DType::kFloat32)};
  EXPECT_EQ(TransferDigest({.views = views, .layout = LayoutDigest(views)}),
            TransferDigest({.views = views}));
}

TEST(CheckViews, RefusesWhatIsNoTensor) {
  const auto check = [](const TensorView& view) {
    const Transfer transfer = {.views = {&view, 1}};
    return CheckViews({&transfer, 1});
  };
  LOCKSTEP_EXPECT_OK(check(View(DType::kBool)));
  EXPECT_THAT(check(View(DType::kUnspecified)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'x' has no dtype")));
  EXPECT_THAT(check(View(DType::kBool, {2, -1})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("negative dimension")));
  TensorView nowhere = View(DType::kBool);
  nowhere.data = nullptr;
  EXPECT_THAT(check(nowhere),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has no data")));
  nowhere.spec.shape = {0};
  LOCKSTEP_EXPECT_OK(check(nowhere));
}

TEST(CheckViews, BoundsTheTensorsOfAllTransfersTogether) {
  const std::vector<TensorView> views(kMaxTensors / 2 + 1, View(DType::kBool));
  const std::vector<Transfer> transfers(2, Transfer{.views = views});
  LOCKSTEP_EXPECT_OK(CheckViews({transfers.data(), 1}));
  EXPECT_THAT(CheckViews(transfers), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(CheckManner, SaysWhatIsLeftForATensorThatIsNotReduced) {
  const auto check = [](DType dtype, ReduceOp op) {
    const TensorView view = View(dtype);
    const Transfer transfer = {.reduce = op, .views = {&view, 1}};
    return CheckManner({&transfer, 1}, 2);
  };
  LOCKSTEP_EXPECT_OK(check(DType::kFloat16, ReduceOp::kMean));
  EXPECT_THAT(check(DType::kInt64, ReduceOp::kMean),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "tensor 'x' is int64, which is not reduced by mean; broadcast it, reduce "
                       "it by sum or min or max, or reduce a copy of another dtype"));
  EXPECT_THAT(check(DType::kComplex64, ReduceOp::kMax),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("by sum or mean")));
}

TEST(CheckManner, RefusesARootThatIsNoRank) {
  for (const int root : {-1, 2}) {
    const Transfer transfer = {.root = root};
    EXPECT_THAT(CheckManner({&transfer, 1}, 2),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ranks are 0 to 1")));
  }
}

TEST(CheckManner, RefusesWeightsWhoseSumIsNotFinite) {
  const double most = std::numeric_limits<double>::max();
  const Transfer transfer = {.reduce = ReduceOp::kMean, .weights = {most, most}};
  EXPECT_THAT(CheckManner({&transfer, 1}, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("add up to inf")));
}

}  // namespace
}  // namespace lockstep
