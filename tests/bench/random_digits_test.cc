#include "tests/bench/random_digits.h"

#include <cstddef>
#include <cstdlib>
#include <filesystem>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/trainer/mnist.h"

namespace lockstep {
namespace {

LabeledImages Written(const std::string& folder, std::uint64_t seed) {
  const std::string path = testing::TempDir() + "/" + folder;
  std::filesystem::create_directories(path);
  EXPECT_THAT(WriteRandomDigits(path, 64, seed), IsOk());
  const auto images = LoadMnist(path, MnistPart::kTrain);
  EXPECT_THAT(images, IsOk());
  return images.value_or(LabeledImages());
}

int Distance(const LabeledImages& images, std::int64_t a, std::int64_t b) {
  int distance = 0;
  for (std::int64_t k = 0; k < kImagePixels; ++k) {
    distance += std::abs(images.pixels[a * kImagePixels + k] - images.pixels[b * kImagePixels + k]);
  }
  return distance;
}

TEST(RandomDigits, AreReadAsMnistIs) {
  const LabeledImages images = Written("read", 1);
  EXPECT_EQ(images.size(), 64);
  EXPECT_EQ(images.pixels.size(), 64 * kImagePixels);
}

TEST(RandomDigits, EqualSeedsGiveEqualFiles) {
  EXPECT_EQ(Written("a", 5).pixels, Written("b", 5).pixels);
  EXPECT_EQ(Written("a", 5).labels, Written("b", 5).labels);
  EXPECT_NE(Written("a", 5).pixels, Written("b", 6).pixels);
}

TEST(RandomDigits, ImagesOfOneDigitAreAlikeAndThoseOfTwoAreNot) {
  const LabeledImages images = Written("alike", 2);
  for (std::int64_t a = 0; a < images.size(); ++a) {
    for (std::int64_t b = 0; b < a; ++b) {
      // Noise of 64 levels differs by 21 on average, patterns of 192 by 64.
      EXPECT_EQ(Distance(images, a, b) < 40 * kImagePixels, images.labels[a] == images.labels[b]);
    }
  }
}

TEST(RandomDigits, AFolderThatIsNotThereIsAnError) {
  EXPECT_THAT(WriteRandomDigits("/nowhere/at/all", 1, 1),
              StatusIs(absl::StatusCode::kInternal));
}

}  // namespace
}  // namespace lockstep
