#include "coordinator/rpc/page.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr PageLimits kLimits = {.default_size = 10, .max_size = 50};

TEST(ParsePage, TakesTheDefaultForZeroAndTheMaximumForMore) {
  EXPECT_EQ(ParsePage("jobs", kLimits, 0, "")->size, 10);
  EXPECT_EQ(ParsePage("jobs", kLimits, 7, "")->size, 7);
  EXPECT_EQ(ParsePage("jobs", kLimits, 1000, "")->size, 50);
}

TEST(ParsePage, RefusesANegativeSize) {
  EXPECT_THAT(ParsePage("jobs", kLimits, -1, ""),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("-1")));
}

TEST(ParsePage, GoesOnWhereTheTokenSays) {
  EXPECT_EQ(ParsePage("jobs", kLimits, 0, PageToken("jobs", "mnist"))->after, "mnist");
  EXPECT_EQ(ParsePage("jobs", kLimits, 0, "")->after, "");
}

TEST(ParsePage, RefusesATokenOfAnotherListAndGarbage) {
  for (const std::string& token : {PageToken("workers", "w0"), std::string("%%%"),
                                   std::string("mnist"), PageToken("jobs", "")}) {
    EXPECT_THAT(ParsePage("jobs", kLimits, 0, token),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << token;
  }
}

TEST(PageFill, EndsAtTheSizeOrAtTheBytes) {
  PageFill by_size(Page{.size = 2});
  by_size.Add(1);
  EXPECT_TRUE(by_size.Fits());
  by_size.Add(1);
  EXPECT_FALSE(by_size.Fits());

  PageFill by_bytes(Page{.size = 100});
  EXPECT_TRUE(by_bytes.Fits());
  by_bytes.Add(kMaxPageBytes);
  EXPECT_FALSE(by_bytes.Fits());
}

}  // namespace
}  // namespace lockstep
