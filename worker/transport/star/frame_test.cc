#include "worker/transport/star/frame.h"

#include <string>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::star {
namespace {

using testing::HasSubstr;

std::string Bytes(FrameKind kind, absl::string_view payload) {
  std::string bytes;
  AppendFrame(kind, payload, bytes);
  return bytes;
}

TEST(Frame, HasTheBytesThatTheHeaderSays) {
  EXPECT_EQ(Bytes(FrameKind::kRecord, "abc"), std::string("LS\x01\x03\x03\0\0\0abc", 11));
  EXPECT_EQ(Encode(std::int64_t{0x0102}), std::string("\x02\x01\0\0\0\0\0\0", 8));
}

TEST(FrameReader, PutsPiecesOfAnySizeTogether) {
  Prng prng(1);
  std::vector<std::string> sent;
  std::string stream;
  for (int i = 0; i < 200; ++i) {
    std::string payload;
    for (auto left = prng.Below(50); left > 0; --left) payload.push_back(prng.Next());
    AppendFrame(FrameKind::kRecords, payload, stream);
    sent.push_back(payload);
  }
  FrameReader reader(50);
  std::vector<std::string> come;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t size = 1 + prng.Below(30);
    reader.Append(absl::string_view(stream).substr(at, size));
    at += size;
    while (true) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<Frame> frame, reader.Next());
      if (!frame.has_value()) break;
      EXPECT_EQ(frame->kind, FrameKind::kRecords);
      come.push_back(frame->payload);
    }
  }
  EXPECT_EQ(come, sent);
}

TEST(FrameReader, SaysThatBytesAreNoFrameAsSoonAsTheyCannotBe) {
  for (const std::string bytes : {"G", "LG", "GET / HTTP/1.1\r\n"}) {
    FrameReader reader(100);
    reader.Append(bytes);
    EXPECT_THAT(reader.Next(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no frame begins")));
  }
  for (const char kind : {0, 9, 127}) {
    FrameReader reader(100);
    std::string bytes = Bytes(FrameKind::kHello, "");
    bytes[3] = kind;
    reader.Append(bytes);
    EXPECT_THAT(reader.Next(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("unknown kind")));
  }
}

TEST(FrameReader, NamesAnotherVersionBeforeItReadsTheRest) {
  FrameReader reader(100);
  reader.Append("LS\x02");
  EXPECT_THAT(reader.Next(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("version 2, this rank speaks version 1")));
}

TEST(FrameReader, RefusesAPayloadThatIsTooLargeBeforeItComes) {
  const std::string bytes = Bytes(FrameKind::kRecord, std::string(101, 'x'));
  FrameReader fits(101);
  fits.Append(bytes);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<Frame> frame, fits.Next());
  EXPECT_TRUE(frame.has_value());

  FrameReader reader(100);
  reader.Append(absl::string_view(bytes).substr(0, 8));
  EXPECT_THAT(reader.Next(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("101 bytes")));
}

TEST(FrameReader, SurvivesBytesThatNobodyWrote) {
  Prng prng(2);
  for (int round = 0; round < 2000; ++round) {
    // Most begin as frames do, to get further.
    std::string bytes = Bytes(static_cast<FrameKind>(1 + prng.Below(8)),
                              std::string(prng.Below(20), 'x')) +
                        Bytes(FrameKind::kEnd, "");
    for (auto changes = prng.Below(4); changes > 0; --changes) {
      bytes[prng.Below(bytes.size())] = static_cast<char>(prng.Next());
    }
    FrameReader reader(64);
    reader.Append(bytes);
    std::size_t frames = 0;
    while (true) {
      const auto frame = reader.Next();
      if (!frame.ok() || !frame->has_value()) break;
      EXPECT_LE((*frame)->payload.size(), 64u);
      DecodeHello((*frame)->payload).status().IgnoreError();
      DecodeNumber((*frame)->payload).status().IgnoreError();
      EXPECT_FALSE(DecodeError((*frame)->payload).ok());
      ++frames;
    }
    EXPECT_LE(frames, 5u);
  }
}

TEST(Payloads, ReadBackAsTheyWere) {
  const Hello hello = {.nonce = ~0ull, .members = 7, .epoch = -3, .rank = 1ll << 40};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Hello hello_back, DecodeHello(Encode(hello)));
  EXPECT_EQ(hello_back, hello);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::int64_t number, DecodeNumber(Encode(-5)));
  EXPECT_EQ(number, -5);
  const absl::Status error = absl::ResourceExhaustedError("no memory");
  EXPECT_EQ(DecodeError(Encode(error)), error);
}

TEST(Payloads, OfAnotherSizeAreRefused) {
  EXPECT_THAT(DecodeHello("short"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodeNumber("123456789"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Payloads, AnErrorIsAlwaysAnError) {
  EXPECT_THAT(DecodeError(""), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(DecodeError(Encode(std::int64_t{0}) + "fine"),
              StatusIs(absl::StatusCode::kInternal, "fine"));
  EXPECT_THAT(DecodeError(Encode(std::int64_t{99}) + "new"),
              StatusIs(absl::StatusCode::kInternal, "new"));
}

TEST(Payloads, ALongReasonIsCutBetweenCharacters) {
  std::string text(kMaxReasonBytes - 1, 'x');
  text += "\u00e9";
  const absl::Status back = DecodeError(Encode(absl::AbortedError(text)));
  EXPECT_EQ(back.message(), text.substr(0, kMaxReasonBytes - 1));
  EXPECT_LE(Encode(absl::AbortedError(std::string(10'000, 'x'))).size(), kMaxControlBytes);
}

}  // namespace
}  // namespace lockstep::star
