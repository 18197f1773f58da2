#include "common/manifest/manifest.h"

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "common/manifest/random_manifest.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kHuge = std::int64_t{1} << 40;

Manifest Model() {
  return {.parameters = {{.tensor = {"fc.weight", DType::kFloat32, {10, 84}}},
                         {.tensor = {"fc.bias", DType::kFloat32, {10}}, .trainable = false}},
          .buffers = {{"bn.running_mean", DType::kFloat32, {84}},
                      {"bn.num_batches_tracked", DType::kInt64, {}}},
          .optimizer = "AdamW(lr=0.001)"};
}

TEST(DType, NamesAndNumbersAreDistinctAndKnown) {
  std::set<std::string> names;
  for (int number = 1; number <= 21; ++number) {
    ASSERT_TRUE(DTypeFromNumber(number).has_value()) << number;
    EXPECT_GT(ElementBytes(*DTypeFromNumber(number)), 0) << number;
    names.insert(std::string(DTypeName(*DTypeFromNumber(number))));
  }
  EXPECT_EQ(names.size(), 21u);
  EXPECT_EQ(DTypeName(DType::kBfloat16), "bfloat16");
  EXPECT_EQ(ElementBytes(DType::kComplex128), 16);
  EXPECT_EQ(ElementBytes(DType::kFloat8E8m0fnu), 1);
}

TEST(DType, UnknownNumbersAreNone) {
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{22},
                                    (std::int64_t{1} << 32) + 1}) {
    EXPECT_FALSE(DTypeFromNumber(number).has_value()) << number;
  }
  EXPECT_EQ(ElementBytes(static_cast<DType>(99)), 0);
  EXPECT_EQ(DTypeName(static_cast<DType>(-1)), "unspecified");
}

TEST(TensorSpec, CountsElementsAndBytes) {
  EXPECT_EQ((TensorSpec{"scalar", DType::kInt64, {}}.elements()), 1);
  EXPECT_EQ((TensorSpec{"conv", DType::kFloat32, {64, 3, 7, 7}}.bytes()), 64 * 3 * 7 * 7 * 4);
  EXPECT_EQ((TensorSpec{"empty", DType::kFloat32, {kHuge, kHuge, 0}}.bytes()), 0);
  EXPECT_EQ((TensorSpec{"conv", DType::kFloat32, {64, 3}}.ToString()), "float32[64, 3]");
}

TEST(TensorSpec, StopsAtTheLargestNumberInsteadOfWrapping) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((TensorSpec{"x", DType::kInt8, {kHuge, kHuge}}.elements()), kLargest);
  EXPECT_EQ((TensorSpec{"x", DType::kFloat64, {kHuge, 1 << 22}}.bytes()), kLargest);
}

TEST(Manifest, SumsWhatIsTrainedAndWhatIsBuffered) {
  EXPECT_EQ(Model().trainable_elements(), 840);
  EXPECT_EQ(Model().buffer_bytes(), 84 * 4 + 8);
}

TEST(Validate, AcceptsEveryRandomManifest) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Prng prng(seed);
    EXPECT_THAT(Validate(RandomManifest(prng)), IsOk()) << seed;
  }
  LOCKSTEP_EXPECT_OK(Validate(Manifest{}));
}

TEST(Validate, NamesTheTensorAndWhatIsWrong) {
  struct Case {
    TensorSpec buffer;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases = {
      {{"", DType::kInt8, {}}, {"buffer 2 has no name"}},
      {{"bn.running_mean", DType::kInt8, {}}, {"'bn.running_mean'", "unique"}},
      {{"fc.weight", DType::kInt8, {}}, {"buffer 'fc.weight'", "unique"}},
      {{"x", static_cast<DType>(-1), {}}, {"'x'", "dtype number -1"}},
      {{"x", static_cast<DType>(22), {}}, {"'x'", "dtype number 22"}},
      {{"x", DType::kInt8, {3, -1}}, {"'x'", "int8[3, -1]", "negative"}},
      {{"x", DType::kInt8, {0, -1}}, {"negative"}},
      {{"x", DType::kInt8, {kHuge, kHuge}}, {"'x'", "63 bits"}},
      {{"x", DType::kFloat64, {kHuge, 1 << 21}}, {"'x'", "63 bits"}},
      {{"x", DType::kInt8, std::vector<std::int64_t>(65, 1)}, {"65 dimensions", "64"}},
      {{std::string(1025, 'x'), DType::kInt8, {}}, {"1025 bytes", "1024"}},
      {{"a\nb", DType::kInt8, {}}, {"'a\\nb'", "control"}},
      {{"a\x7f", DType::kInt8, {}}, {"control"}},
      {{"a\xc2\x85", DType::kInt8, {}}, {"control"}},
      {{"a\xff", DType::kInt8, {}}, {"UTF-8"}},
      {{"a\xc3", DType::kInt8, {}}, {"UTF-8"}},
  };
  for (const Case& c : cases) {
    Manifest manifest = Model();
    manifest.buffers.push_back(c.buffer);
    for (const std::string& word : c.words) {
      EXPECT_THAT(Validate(manifest),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)));
    }
  }
}

TEST(Validate, OnlyABufferMayBeWithoutPlainValues) {
  Manifest manifest = Model();
  manifest.buffers.push_back({"lazy.running_mean", DType::kUnspecified, {}});
  LOCKSTEP_EXPECT_OK(Validate(manifest));
  EXPECT_EQ(manifest.buffers.back().ToString(), "no plain values");
  EXPECT_EQ(manifest.buffers.back().bytes(), 0);
  manifest.parameters.push_back({{"lazy.weight", DType::kUnspecified, {}}});
  EXPECT_THAT(Validate(manifest), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("'lazy.weight' has the unknown dtype")));
}

TEST(Validate, RefusesASumThatDoesNotFit) {
  Manifest manifest;
  manifest.buffers = {{"a", DType::kInt8, {std::int64_t{1} << 62}},
                      {"b", DType::kInt8, {std::int64_t{1} << 62}}};
  EXPECT_THAT(Validate(manifest),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("up to buffer 'b'")));
}

TEST(Validate, RefusesTooManyTensorsAndALongOptimizer) {
  Manifest manifest;
  manifest.buffers.resize(kMaxTensors + 1);
  EXPECT_THAT(Validate(manifest), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("1000001 tensors; at most 1000000")));
  Manifest wordy = Model();
  wordy.optimizer = std::string(kMaxOptimizerBytes + 1, 'x');
  EXPECT_THAT(Validate(wordy),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("optimizer")));
}

TEST(FirstDifference, NamesTheTensorAndBothViews) {
  struct Case {
    void (*change)(Manifest&);
    std::string expected;
  };
  const std::vector<Case> cases = {
      {[](Manifest& m) { m.parameters[0].tensor.shape = {12, 84}; },
       "parameter 'fc.weight': float32[10, 84] on a, float32[12, 84] on b"},
      {[](Manifest& m) { m.parameters[0].trainable = false; },
       "parameter 'fc.weight': float32[10, 84] on a, float32[10, 84] (frozen) on b"},
      {[](Manifest& m) { m.parameters.erase(m.parameters.begin()); },
       "parameter 'fc.weight': float32[10, 84] on a, absent on b"},
      {[](Manifest& m) { m.parameters.pop_back(); },
       "parameter 'fc.bias': float32[10] (frozen) on a, absent on b"},
      {[](Manifest& m) { m.buffers.insert(m.buffers.begin(), {"new", DType::kBool, {1}}); },
       "buffer 'new': bool[1] on b, absent on a"},
      {[](Manifest& m) { m.buffers.push_back({"new", DType::kBool, {1}}); },
       "buffer 'new': bool[1] on b, absent on a"},
      {[](Manifest& m) { std::swap(m.buffers[0], m.buffers[1]); },
       "buffer 0: 'bn.running_mean' on a, 'bn.num_batches_tracked' on b; the order must be the "
       "same"},
      {[](Manifest& m) { m.optimizer = ""; }, "optimizer: AdamW(lr=0.001) on a, none on b"},
  };
  for (const Case& c : cases) {
    Manifest changed = Model();
    c.change(changed);
    EXPECT_EQ(FirstDifference("a", Model(), "b", changed).value_or("none"), c.expected);
  }
  EXPECT_EQ(FirstDifference("a", Model(), "b", Model()), std::nullopt);
}

// Draws from few values, so that some pairs are equal and most nearly so.
TEST(FirstDifference, AgreesWithEqualityAndWithTheDigest) {
  const auto draw = [](Prng& prng) {
    Manifest manifest = Model();
    if (prng.Below(3) == 0) manifest.parameters[prng.Below(2)].trainable ^= true;
    if (prng.Below(3) == 0) manifest.buffers[prng.Below(2)].shape.push_back(1);
    if (prng.Below(3) == 0) std::swap(manifest.buffers[0], manifest.buffers[1]);
    if (prng.Below(3) == 0) manifest.buffers.pop_back();
    if (prng.Below(3) == 0) manifest.optimizer += ";";
    return manifest;
  };
  int equal = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    Prng prng(seed);
    const Manifest a = draw(prng);
    const Manifest b = draw(prng);
    EXPECT_EQ(FirstDifference("a", a, "b", b).has_value(), a != b) << seed;
    EXPECT_EQ(a.Digest() == b.Digest(), a == b) << seed;
    equal += a == b;
  }
  EXPECT_GT(equal, 20);
  EXPECT_LT(equal, 1000);
}

}  // namespace
}  // namespace lockstep
