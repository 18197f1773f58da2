#include "worker/transport/star/star.h"

#include <unistd.h>

#include "common/base/prng.h"
#include "gmock/gmock.h"
#include "worker/transport/star/star_testing.h"

namespace lockstep::star {
namespace {

using testing::Each;
using testing::HasSubstr;

std::string RandomRecord(std::size_t size, std::uint64_t seed) {
  Prng prng(seed);
  std::string record(size, '\0');
  for (char& c : record) c = static_cast<char>(prng.Next());
  return record;
}

class Stars : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OneToFiveRanks, Stars, testing::Range(1, 6));

TEST_P(Stars, HandEveryRecordToEveryRank) {
  const int n = GetParam();
  Meeting meeting(n);
  meeting.FormAll();
  const std::vector<std::string> failures = OnEach<std::string>(meeting.all, [&](int rank) {
    Prng sizes(5);  // alike on all
    for (int round = 0; round < 300; ++round) {
      const std::size_t size = round == 7             ? kMaxRecordBytes
                               : sizes.Below(10) == 0 ? sizes.Below(kMaxRecordBytes)
                                                      : sizes.Below(200);
      const auto come = meeting.Exchange(rank, RandomRecord(size, 100 * round + rank));
      if (!come.ok()) return come.status().ToString();
      for (int r = 0; r < n; ++r) {
        if ((*come)[r] != RandomRecord(size, 100 * round + r)) {
          return absl::StrCat("round ", round, ": not the record of rank ", r);
        }
      }
    }
    return std::string();
  });
  EXPECT_THAT(failures, Each(""));
}

// Nothing is said to those who are not in an exchange but the end.
TEST_P(Stars, WhatAllCameToCountsAlsoIfRanksLeaveRightAfter) {
  for (int round = 0; round < 30; ++round) {
    Meeting meeting(GetParam());
    meeting.FormAll();
    EXPECT_THAT(OnEach<absl::Status>(meeting.all,
                                     [&](int rank) {
                                       auto status = meeting.Exchange(rank, "last").status();
                                       meeting.stars[rank].reset();
                                       return status;
                                     }),
                Each(IsOk()));
    for (int rank = 0; rank < GetParam(); ++rank) EXPECT_FALSE(meeting.losses[rank].called());
  }
}

TEST(Star, ARankThatDoesNotComeIsNamedToAllWhoDid) {
  Meeting meeting(4);
  meeting.FormAll();
  const auto statuses = meeting.ExchangeOn({0, 1, 3}, In(absl::Seconds(1)));
  EXPECT_THAT(statuses, Each(StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      "w2 (rank 2) did not come in time")));
  EXPECT_EQ(meeting.losses[2].Await(), statuses[0]);
  EXPECT_EQ(meeting.Exchange(2, "late").status(), statuses[0]);
}

// Of rank 0 and of another, before it is in the exchange and while it is.
TEST(Star, AnExchangeWithoutADeadlineEndsWhenItIsHastened) {
  for (const int hastened : {0, 1}) {
    for (const bool before : {true, false}) {
      Meeting meeting(4);
      meeting.FormAll();
      if (before) meeting.stars[hastened]->Hasten(In(absl::Milliseconds(100)));
      std::thread others([&] {
        EXPECT_THAT(OnEach<absl::Status>({0, 1, 3},
                                         [&](int rank) {
                                           return meeting.Exchange(rank, "x", MonoTime::Infinite())
                                               .status();
                                         }),
                    Each(StatusIs(absl::StatusCode::kDeadlineExceeded,
                                  "w2 (rank 2) did not come in time")));
      });
      // By then they sleep, as a rule.
      for (int i = 0; i < 10'000 && !before; ++i) std::this_thread::yield();
      if (!before) meeting.stars[hastened]->Hasten(In(absl::Milliseconds(100)));
      others.join();
    }
  }
}

TEST(Star, ATimeToHastenToIsTakenBackByAnother) {
  Meeting meeting(3);
  meeting.FormAll();
  for (const auto& star : meeting.stars) star->Hasten(MonoTime());
  for (const auto& star : meeting.stars) star->Hasten(MonoTime::Infinite());
  EXPECT_THAT(meeting.ExchangeOn(meeting.all), Each(IsOk()));
}

TEST(Star, AnEarlierDeadlineOfAnotherRankNamesThoseWhoAreTrulyMissing) {
  Meeting meeting(4);
  meeting.FormAll();
  // Rank 0 and rank 1 would wait for long.
  const auto statuses = OnEach<absl::Status>({0, 1, 3}, [&](int rank) {
    return meeting.Exchange(rank, "x", rank == 3 ? In(absl::Seconds(1)) : Far()).status();
  });
  EXPECT_THAT(statuses, Each(StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      "w2 (rank 2) did not come in time")));
}

TEST(Star, RankZeroThatDoesNotComeNamesItself) {
  Meeting meeting(3);
  meeting.FormAll();
  const auto statuses = meeting.ExchangeOn({1}, In(absl::Milliseconds(100)));
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                    "w0 (rank 0), w2 (rank 2) did not come in time"));
  for (const int rank : {0, 2}) EXPECT_EQ(meeting.losses[rank].Await(), statuses[0]);
}

TEST(Star, AbortFreesAllWithItsCodeAndWords) {
  for (const int aborter : {0, 1, 2}) {
    Meeting meeting(3);
    meeting.FormAll();
    const absl::Status why = absl::AbortedError(absl::StrCat("w", aborter, " has no memory"));
    // Rank 2 is in no exchange.
    std::vector<absl::Status> statuses;
    std::thread others([&] { statuses = meeting.ExchangeOn({0, 1}); });
    meeting.stars[aborter]->Abort(why);
    meeting.stars[aborter]->Abort(absl::InternalError("a second reason"));
    others.join();
    EXPECT_THAT(statuses, Each(why));
    for (const int rank : {0, 1, 2}) {
      if (rank != aborter) {
        EXPECT_EQ(meeting.losses[rank].Await(), why);
      }
      EXPECT_EQ(meeting.Exchange(rank, "x").status(), why);
    }
    meeting.stars.clear();
    EXPECT_FALSE(meeting.losses[aborter].called());
  }
}

TEST(Star, AbortWithoutAReasonIsStillAnError) {
  Meeting meeting(1);
  meeting.FormAll();
  meeting.stars[0]->Abort(absl::OkStatus());
  EXPECT_THAT(meeting.Exchange(0, "x"), StatusIs(absl::StatusCode::kAborted));
}

TEST(Star, ARankThatLeftIsMissedOnlyWhenOthersWantToMeet) {
  Meeting meeting(3);
  meeting.FormAll();
  EXPECT_THAT(meeting.ExchangeOn(meeting.all), Each(IsOk()));
  meeting.stars[2].reset();
  // Had anybody taken it for a crash, this would say that it is gone.
  EXPECT_THAT(meeting.ExchangeOn({0, 1}),
              Each(StatusIs(absl::StatusCode::kUnavailable, "w2 (rank 2) has left the epoch")));
}

TEST(Star, AnotherRankSeesThatOneLeftAlsoIfRankZeroDoesNotCome) {
  Meeting meeting(3);
  meeting.FormAll();
  meeting.stars[2].reset();
  EXPECT_THAT(meeting.Exchange(1, "x"),
              StatusIs(absl::StatusCode::kUnavailable, "w2 (rank 2) has left the epoch"));
}

TEST(Star, RankZeroMayLeaveFirst) {
  Meeting meeting(3);
  meeting.FormAll();
  meeting.stars[0].reset();
  EXPECT_THAT(meeting.ExchangeOn({1, 2}),
              Each(StatusIs(absl::StatusCode::kUnavailable, "w0 (rank 0) has left the epoch")));
}

TEST(Star, RecordsOfDifferentSizesAreNamed) {
  Meeting meeting(3);
  meeting.FormAll();
  const auto statuses = OnEach<absl::Status>(meeting.all, [&](int rank) {
    return meeting.Exchange(rank, std::string(rank == 1 ? 5 : 4, 'x')).status();
  });
  EXPECT_THAT(statuses, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("4 bytes on w0 (rank 0), 5 bytes on w1 (rank 1)"))));
}

TEST(Star, ARecordThatIsTooLargeIsNamedToAll) {
  for (const int who : {0, 1}) {
    Meeting meeting(3);
    meeting.FormAll();
    const auto statuses = OnEach<absl::Status>(meeting.all, [&](int rank) {
      return meeting.Exchange(rank, std::string(rank == who ? kMaxRecordBytes + 1 : 4, 'x'))
          .status();
    });
    EXPECT_THAT(statuses,
                Each(StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr(absl::StrCat("w", who, " (rank ", who,
                                                     ") gave a record of 65537 bytes")))));
  }
}

// A rank that the test plays, as it breaks off without a word.
TEST(Star, AConnectionThatBreaksIsNamedToAllAlsoIfNobodyMeets) {
  Meeting meeting(4);
  std::vector<absl::Status> formed;
  std::thread others([&] { formed = meeting.Form({0, 1, 3}); });
  {
    Connection rank2 = PlayRank(meeting, 2);
    ASSERT_TRUE(AwaitFrame(rank2).has_value());
    others.join();
    EXPECT_THAT(formed, Each(IsOk()));
  }
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(meeting.losses[rank].Await(),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("w2 (rank 2) is gone")));
  }
  EXPECT_THAT(meeting.ExchangeOn({0, 1, 3}), Each(meeting.losses[0].Await()));
}

TEST(Star, AConnectionThatBreaksFreesThoseWhoWait) {
  Meeting meeting(3);
  std::vector<absl::Status> exchanged;
  std::thread others([&] {
    EXPECT_THAT(meeting.Form({0, 1}), Each(IsOk()));
    exchanged = meeting.ExchangeOn({0, 1});
  });
  {
    Connection rank2 = PlayRank(meeting, 2);
    ASSERT_TRUE(AwaitFrame(rank2).has_value());
  }
  others.join();
  EXPECT_THAT(exchanged, Each(StatusIs(absl::StatusCode::kUnavailable,
                                       HasSubstr("w2 (rank 2) is gone"))));
}

TEST(Star, ARankThatSaysWhatNoneSaysIsNamed) {
  using Say = std::function<void(Connection&)>;
  const std::vector<Say> sayings = {
      [](Connection& c) {  // two records for one exchange
        std::string bytes;
        AppendFrame(FrameKind::kRecord, "record", bytes);
        AppendFrame(FrameKind::kRecord, "record", bytes);
        ASSERT_EQ(write(c.fd(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
      },
      [](Connection& c) { c.Send(FrameKind::kRecords, "mine to send?"); },
      [](Connection& c) { c.Send(FrameKind::kRecord, std::string(kMaxRecordBytes + 1, 'x')); },
      [](Connection& c) { c.SendLast(FrameKind::kOverdue, "no number"); },
      [](Connection& c) { ASSERT_EQ(write(c.fd(), "garbage", 7), 7); }};
  for (const Say& say : sayings) {
    Meeting meeting(3);
    std::vector<absl::Status> exchanged;
    std::thread others([&] {
      EXPECT_THAT(meeting.Form({0, 1}), Each(IsOk()));
      exchanged = meeting.ExchangeOn({0, 1});
    });
    Connection rank2 = PlayRank(meeting, 2);
    ASSERT_TRUE(AwaitFrame(rank2).has_value());
    say(rank2);
    others.join();
    EXPECT_THAT(exchanged, Each(StatusIs(absl::StatusCode::kUnavailable,
                                         HasSubstr("w2 (rank 2) is gone: "))));
  }
}

// The test plays rank 0.
class PlayedRankZero : public testing::Test {
 protected:
  void SetUp() override {
    std::string endpoint;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Fd port, ListenOn("127.0.0.1", &endpoint));
    meeting_.address = absl::StrCat(endpoint, " 00000000000000ff");
    std::thread rank1([&] { EXPECT_THAT(meeting_.Form(1), IsOk()); });
    pollfd readable = {.fd = port.get(), .events = POLLIN, .revents = 0};
    Poll({&readable, 1}, Far());
    rank0_.emplace(Accept(port), 1 << 20);
    const std::optional<Frame> hello = AwaitFrame(*rank0_);
    ASSERT_TRUE(hello.has_value());
    EXPECT_EQ(hello->payload, Encode(HelloOf(meeting_.groups[1], meeting_.address)));
    rank0_->Send(FrameKind::kWelcome, "");
    rank1.join();
  }

  Meeting meeting_{2};
  std::optional<Connection> rank0_;
};

TEST_F(PlayedRankZero, IsNamedWhenItsConnectionBreaks) {
  rank0_.reset();
  EXPECT_THAT(meeting_.losses[1].Await(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("w0 (rank 0) is gone")));
  EXPECT_EQ(meeting_.Exchange(1, "x").status(), meeting_.losses[1].Await());
}

TEST_F(PlayedRankZero, IsNamedWhenItDoesNotAnswer) {
  EXPECT_THAT(meeting_.Exchange(1, "x", In(absl::Milliseconds(50))),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "w0 (rank 0) did not come in time"));
}

TEST_F(PlayedRankZero, MayAnswerAtTheLastMoment) {
  std::thread rank1([&] {
    EXPECT_THAT(meeting_.Exchange(1, "x", In(absl::Milliseconds(50))), IsOk());
  });
  for (const FrameKind kind : {FrameKind::kRecord, FrameKind::kOverdue}) {
    const std::optional<Frame> frame = AwaitFrame(*rank0_);
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->kind, kind);
  }
  rank0_->Send(FrameKind::kRecords, "yx");
  rank1.join();
}

TEST_F(PlayedRankZero, AnswersAndTheAnswerCountsAlsoIfTheEpochEndsRightAfter) {
  std::thread rank1([&] { EXPECT_THAT(meeting_.Exchange(1, "x"), IsOk()); });
  ASSERT_TRUE(AwaitFrame(*rank0_).has_value());
  std::string bytes;
  AppendFrame(FrameKind::kRecords, "yx", bytes);
  AppendFrame(FrameKind::kEnd, Encode(absl::AbortedError("enough")), bytes);
  ASSERT_EQ(write(rank0_->fd(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  rank1.join();
  EXPECT_THAT(meeting_.Exchange(1, "x"), StatusIs(absl::StatusCode::kAborted, "enough"));
}

TEST_F(PlayedRankZero, NeedNotAnswerForAnAbortToEndThisRanksWait) {
  std::thread rank1([&] {
    EXPECT_THAT(meeting_.Exchange(1, "x"), StatusIs(absl::StatusCode::kAborted, "enough"));
  });
  ASSERT_TRUE(AwaitFrame(*rank0_).has_value());
  meeting_.stars[1]->Abort(absl::AbortedError("enough"));
  rank1.join();
}

TEST_F(PlayedRankZero, IsNamedWhenItSendsWhatNobodyAskedFor) {
  rank0_->SendLast(FrameKind::kRecords, "xy");
  EXPECT_THAT(meeting_.losses[1].Await(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("w0 (rank 0) is gone: it sent a frame of kind 4")));
}

}  // namespace
}  // namespace lockstep::star
