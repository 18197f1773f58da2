#include "tests/hosts/wire/line.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::Eq;
using testing::Optional;

MonoTime At(double milliseconds) { return MonoTime() + absl::Milliseconds(milliseconds); }

// Frame n, by its number, enters at n * `every`; the milliseconds at which frames leave, by number;
// negative: never.
std::vector<double> Travel(Line& line, int frames, double every) {
  std::vector<double> left(frames, -1);
  const auto take = [&](MonoTime now) {
    for (MonoTime at = line.next(); at <= now && at != MonoTime::Infinite(); at = line.next()) {
      left[std::stoi(line.Leave(at).value())] = absl::ToDoubleMilliseconds(at - MonoTime());
    }
  };
  for (int i = 0; i < frames; ++i) {
    take(At(i * every));
    line.Enter(absl::StrCat(i), At(i * every));
  }
  take(MonoTime::Infinite());
  return left;
}

TEST(Line, PassesAFrameWhenItsDelayIsOver) {
  Line line({.delay = absl::Milliseconds(5)}, 1);
  line.Enter("frame", At(10));
  EXPECT_EQ(line.next(), At(15));
  EXPECT_EQ(line.Leave(At(14.9)), std::nullopt);
  EXPECT_THAT(line.Leave(At(15)), Optional(Eq("frame")));
  EXPECT_EQ(line.Leave(At(100)), std::nullopt);
  EXPECT_EQ(line.next(), MonoTime::Infinite());
}

TEST(Line, KeepsDelaysWithinTheJitterAndUsesAllOfIt) {
  Line line({.delay = absl::Milliseconds(5), .jitter = absl::Milliseconds(2)}, 7);
  const std::vector<double> left = Travel(line, 1000, /*every=*/10);  // none waits for another
  double least = 100, most = 0;
  for (int i = 0; i < 1000; ++i) {
    least = std::min(least, left[i] - 10 * i);
    most = std::max(most, left[i] - 10 * i);
  }
  EXPECT_GE(least, 3);
  EXPECT_LE(least, 3.1);
  EXPECT_GE(most, 6.9);
  EXPECT_LE(most, 7);
}

TEST(Line, LetsNoFrameOvertakeAnother) {
  Line line({.delay = absl::Milliseconds(5), .jitter = absl::Milliseconds(4)}, 3);
  std::vector<std::string> order;
  for (int i = 0; i < 100; ++i) line.Enter(absl::StrCat(i), At(0.1 * i));
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(line.Leave(MonoTime::Infinite()), Optional(absl::StrCat(i)));
  }
}

TEST(Line, LosesItsShare) {
  Line line({.loss = 0.01}, 5);
  Travel(line, 100'000, /*every=*/1);
  EXPECT_NEAR(line.lost(), 1000, 150);
  EXPECT_EQ(line.lost() + line.passed(), 100'000);
}

TEST(Line, TreatsTheSameFramesAlikeUnderOneSeedAndOthersUnderAnother) {
  const LineQuality quality = {absl::Milliseconds(5), absl::Milliseconds(2), 0.1};
  Line one(quality, 1), same(quality, 1), other(quality, 2);
  const std::vector<double> left = Travel(one, 500, /*every=*/1);
  EXPECT_EQ(Travel(same, 500, /*every=*/1), left);
  EXPECT_NE(Travel(other, 500, /*every=*/1), left);
}

TEST(Line, ThatIsCutLosesWhatIsUnderWayAndWhatComes) {
  Line line({.delay = absl::Milliseconds(5)}, 1);
  line.Enter("under way", At(0));
  line.Cut();
  EXPECT_EQ(line.next(), MonoTime::Infinite());
  line.Enter("late", At(1));
  EXPECT_EQ(line.Leave(MonoTime::Infinite()), std::nullopt);
  line.Heal();
  EXPECT_EQ(line.Leave(MonoTime::Infinite()), std::nullopt);
  line.Enter("healed", At(20));
  EXPECT_EQ(line.next(), At(25));
  EXPECT_EQ(line.lost(), 2);
}

TEST(Line, TreatsFramesBehindACutAsIfThereHadBeenNone) {
  const LineQuality quality = {absl::Milliseconds(5), absl::Milliseconds(2), 0.2};
  Line whole(quality, 4), cut(quality, 4);
  for (int i = 0; i < 10; ++i) whole.Enter("before", At(i));
  cut.Cut();
  for (int i = 0; i < 10; ++i) cut.Enter("before", At(i));
  cut.Heal();
  while (whole.Leave(MonoTime::Infinite())) {
  }
  for (int i = 0; i < 100; ++i) {
    const MonoTime now = At(100 + 10 * i);
    whole.Enter("frame", now);
    cut.Enter("frame", now);
    ASSERT_EQ(cut.next(), whole.next()) << i;
    whole.Leave(MonoTime::Infinite());
    cut.Leave(MonoTime::Infinite());
  }
}

TEST(Line, LosesWhatDoesNotFit) {
  Line line({.delay = absl::Seconds(1)}, 1);
  for (std::size_t i = 0; i < Line::kMostUnderWay + 3; ++i) line.Enter("frame", At(0));
  EXPECT_EQ(line.lost(), 3);
}

}  // namespace
}  // namespace lockstep
