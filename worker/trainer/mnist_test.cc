#include "worker/trainer/mnist.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string BigEndian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}
std::string Images(std::uint32_t count, std::uint32_t rows = 28) {
  return BigEndian(0x803) + BigEndian(count) + BigEndian(rows) + BigEndian(28) +
         std::string(count * rows * 28, '\x07');
}
std::string Labels(const std::string& labels) {
  return BigEndian(0x801) + BigEndian(labels.size()) + labels;
}

auto IsCorrupt(const std::string& what) {
  return StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("'some-file'"), HasSubstr(what)));
}

TEST(ParseIdxImages, ReadsAllPixels) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto pixels, ParseIdxImages("some-file", Images(3)));
  EXPECT_EQ(pixels, std::vector<std::uint8_t>(3 * kImagePixels, 7));
}

TEST(ParseIdxImages, SaysWhatIsWrongWithWhichFile) {
  EXPECT_THAT(ParseIdxImages("some-file", ""), IsCorrupt("has 0 bytes"));
  EXPECT_THAT(ParseIdxImages("some-file", Images(1).substr(0, 15)), IsCorrupt("has 15 bytes"));
  EXPECT_THAT(ParseIdxImages("some-file", Labels(std::string(20, 1))), IsCorrupt("0x00000801"));
  EXPECT_THAT(ParseIdxImages("some-file", Images(0)), IsCorrupt("announces 0 entries"));
  EXPECT_THAT(ParseIdxImages("some-file", Images(2, 20)), IsCorrupt("20 x 28"));
  EXPECT_THAT(ParseIdxImages("some-file", Images(2) + "x"), IsCorrupt("has 1569 bytes"));
  EXPECT_THAT(ParseIdxImages("some-file", Images(2).substr(0, 100)), IsCorrupt("has 84 bytes"));
  std::string huge = Images(1);
  huge.replace(4, 4, BigEndian(0xffffffff));
  EXPECT_THAT(ParseIdxImages("some-file", huge), IsCorrupt("announces 4294967295 entries"));
}

TEST(ParseIdxLabels, SaysWhatIsWrongWithWhichFile) {
  LOCKSTEP_EXPECT_OK(ParseIdxLabels("some-file", Labels({0, 9})));
  EXPECT_THAT(ParseIdxLabels("some-file", Labels({0, 10})), IsCorrupt("entry 1 as 10"));
  EXPECT_THAT(ParseIdxLabels("some-file", Labels({0, 9}) + "x"), IsCorrupt("has 3 bytes"));
  EXPECT_THAT(ParseIdxLabels("some-file", Images(1)), IsCorrupt("0x00000803"));
}

TEST(ParseIdx, AnyBytesAreParsedOrRefused) {
  Prng prng(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = prng.Below(2) == 0 ? Images(1) : Labels({1, 2, 3});
    for (std::uint64_t edits = prng.Below(4); edits > 0; --edits) {
      bytes[prng.Below(std::min<std::size_t>(bytes.size(), 20))] = static_cast<char>(prng.Next());
    }
    bytes.resize(prng.Below(bytes.size() + 1));
    ParseIdxImages("some-file", bytes).IgnoreError();
    ParseIdxLabels("some-file", bytes).IgnoreError();
  }
}

TEST(LoadMnist, NamesTheFileThatIsMissingOrDoesNotFit) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  EXPECT_THAT(LoadMnist(folder, MnistPart::kTest),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("t10k-images-idx3-ubyte")));
  std::ofstream(folder + "/t10k-images-idx3-ubyte", std::ios::binary) << Images(2);
  EXPECT_THAT(LoadMnist(folder, MnistPart::kTest),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("t10k-labels-idx1-ubyte")));
  std::ofstream(folder + "/t10k-labels-idx1-ubyte", std::ios::binary) << Labels({1, 2, 3});
  EXPECT_THAT(LoadMnist(folder, MnistPart::kTest),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("has 3 labels")));
  std::ofstream(folder + "/t10k-labels-idx1-ubyte", std::ios::binary) << Labels({1, 2});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const LabeledImages images, LoadMnist(folder, MnistPart::kTest));
  EXPECT_EQ(images.size(), 2);
}

TEST(LoadMnist, ReadsTheRealFiles) {
  for (const auto& [part, size] : {std::pair(MnistPart::kTrain, 60000),
                                   std::pair(MnistPart::kTest, 10000)}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const LabeledImages images,
                                  LoadMnist("external/mnist/package/data", part));
    EXPECT_EQ(images.size(), size);
  }
}

}  // namespace
}  // namespace lockstep
