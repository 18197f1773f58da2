#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "common/base/checksum.h"
#include "common/base/digest.h"
#include "common/base/duration.h"
#include "common/base/host_port.h"
#include "common/base/ids.h"
#include "common/base/mailbox.h"
#include "common/base/manual_clock.h"
#include "common/base/prng.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "common/base/text.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(StrongId, ZeroIsNotValidAndIdsGrow) {
  EXPECT_FALSE(Epoch().valid());
  EXPECT_TRUE(Epoch().next().valid());
  EXPECT_LT(Epoch(3), Epoch(3).next());
}

TEST(ParseDuration, TakesUnitsAndBareSeconds) {
  EXPECT_EQ(*ParseDuration("10s"), absl::Seconds(10));
  EXPECT_EQ(*ParseDuration("500ms"), absl::Milliseconds(500));
  EXPECT_EQ(*ParseDuration("1m30s"), absl::Seconds(90));
  EXPECT_EQ(*ParseDuration("0.5"), absl::Milliseconds(500));
  EXPECT_EQ(*ParseDuration("0"), absl::ZeroDuration());
}

TEST(ParseDuration, RefusesWhatIsNoTime) {
  for (const char* text : {"", "x", "10 s", "10x", "-1", "-1s", "inf", "nan", "1e30"}) {
    EXPECT_THAT(ParseDuration(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                              HasSubstr("write it as 500ms, 10s or 2m")))
        << text;
  }
}

TEST(MonoTime, AddsSubtractsAndSaturates) {
  ManualClock clock;
  const MonoTime start = clock.Now();
  clock.Advance(absl::Milliseconds(5));
  EXPECT_EQ(clock.Now() - start, absl::Milliseconds(5));
  EXPECT_EQ(start + absl::InfiniteDuration(), MonoTime::Infinite());
}

TEST(Prng, GivesTheSameNumbersEverywhere) {
  Prng prng(42);
  EXPECT_EQ(prng.Next(), 13679457532755275413u);
  EXPECT_EQ(prng.Next(), 2949826092126892291u);
  for (int i = 0; i < 1000; ++i) {
    const auto x = prng.Between(-2, 2);
    EXPECT_GE(x, -2);
    EXPECT_LE(x, 2);
  }
}

TEST(Digest, TellsFieldBoundariesApart) {
  const auto of = [](absl::string_view a, absl::string_view b) {
    return Digester().Add(a).Add(b).Finish();
  };
  EXPECT_EQ(of("ab", "c"), of("ab", "c"));
  EXPECT_NE(of("ab", "c"), of("a", "bc"));
  EXPECT_NE(of("ab", ""), of("", "ab"));
}

TEST(Checksum, IsThatOfXxh128sumHoweverTheBytesAreCut) {
  EXPECT_EQ(Checksum().Finish(), "99aa06d3014798d86001c324468d497f");
  const std::string text(1000, 'x');
  const auto bytes = std::as_bytes(std::span(text));
  const std::string whole = Checksum().Add(bytes).Finish();
  EXPECT_EQ(whole.size(), Checksum::kDigits);
  EXPECT_EQ(Checksum().Add(bytes.first(3)).Add(bytes.subspan(3)).Finish(), whole);
  EXPECT_NE(Checksum().Add(bytes.first(999)).Finish(), whole);
}

absl::StatusOr<int> Half(int x) {
  if (x % 2 != 0) return absl::InvalidArgumentError("odd");
  return x / 2;
}
absl::StatusOr<int> Quarter(int x) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int half, Half(x));
  return Half(half);
}

TEST(StatusMacros, ReturnTheFirstError) {
  EXPECT_THAT(Quarter(12), IsOk());
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_THAT(Quarter(3), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("odd")));
}

TEST(Mailbox, KeepsOrderRefusesOverflowAndDrainsAfterClose) {
  Mailbox<int> mailbox(2);
  LOCKSTEP_EXPECT_OK(mailbox.Post(1));
  LOCKSTEP_EXPECT_OK(mailbox.Post(2));
  EXPECT_THAT(mailbox.Post(3), StatusIs(absl::StatusCode::kResourceExhausted));
  mailbox.Close();
  EXPECT_THAT(mailbox.Post(4), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(mailbox.Drain(absl::ZeroDuration()), (std::vector<int>{1, 2}));
}

TEST(Mailbox, WakesTheReader) {
  Mailbox<int> mailbox(10);
  std::thread writer([&] { LOCKSTEP_EXPECT_OK(mailbox.Post(7)); });
  EXPECT_EQ(mailbox.Drain(absl::Seconds(10)), std::vector<int>{7});
  writer.join();
}

TEST(ListNames, StaysShort) {
  EXPECT_EQ(ListNames({}), "none");
  EXPECT_EQ(ListNames({"a", "b"}), "a, b");
  EXPECT_EQ(ListNames({"a", "b", "c", "d"}, 2), "a, b and 2 more");
}

TEST(WellFormedPrefix, KnowsEveryFormOfUtf8) {
  const auto whole = [](absl::string_view text) {
    return WellFormedPrefix(text) == text.size();
  };
  for (const char* good : {"", "a.b", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(whole(good)) << good;
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x9f\xbf",
                          "\xed\xa0\x80", "\xe2\x82", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                          "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(whole(bad)) << absl::CHexEscape(bad);
  }
  EXPECT_EQ(WellFormedPrefix("gr\xc3\xb6\xc3"), 4u);
}

TEST(IsPrintable, RefusesControlCharacters) {
  EXPECT_TRUE(IsPrintable("größe \xc2\xa0~"));
  for (const char* bad : {"\n", "a\x1f", "\x7f", "\xc2\x80", "\xc2\x9f", "\xff"}) {
    EXPECT_FALSE(IsPrintable(bad)) << absl::CHexEscape(bad);
  }
  EXPECT_FALSE(IsPrintable(absl::string_view("\0", 1)));
}

TEST(Quoted, EscapesAndCutsAtACharacter) {
  EXPECT_EQ(Quoted("a\n'ü"), "'a\\n\\'ü'");
  std::string umlauts = "x";
  while (umlauts.size() < 300) umlauts += "ü";
  const std::string quoted = Quoted(umlauts);
  EXPECT_EQ(quoted.size(), 1 + 199 + 3 + 1u);
  EXPECT_TRUE(IsPrintable(quoted));
}

TEST(Quoted, EscapesMalformedUtf8AndControlCharactersBeyondAscii) {
  EXPECT_EQ(Quoted("ü\xC3z\xC2\x85"), "'ü\\xc3z\\xc2\\x85'");
}

TEST(HostPort, HasBoth) {
  const auto parsed = ParseHostPort("[::1]:7070");
  LOCKSTEP_ASSERT_OK(parsed);
  EXPECT_EQ(parsed->host, "[::1]");
  EXPECT_EQ(parsed->port, 7070);
  for (const std::string text : {"", "7070", ":7070", "127.0.0.1:", "127.0.0.1:65536", "a:-1"}) {
    EXPECT_THAT(ParseHostPort(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
}

TEST(IsLoopback, KnowsWhatOtherHostsCannotReach) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "localhost", "[::1]"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"", "0.0.0.0", "[::]", "10.0.0.1", "host", "127.example.org"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

}  // namespace
}  // namespace lockstep
