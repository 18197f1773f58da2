// How a star comes to be, and what must not keep it from it.
#include <sys/socket.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "worker/transport/star/star_testing.h"

namespace lockstep::star {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

TEST(StarListener, SaysHowItIsReached) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto first, StarListener::Listen("lo"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto second, StarListener::Listen("lo"));
  EXPECT_THAT(first->address(), MatchesRegex("127\\.0\\.0\\.1:[0-9]+ [0-9a-f]{16}"));
  EXPECT_NE(first->address(), second->address());
  EXPECT_NE(first->address().substr(first->address().find(' ')),
            second->address().substr(second->address().find(' ')));
}

TEST(StarListener, RefusesAnInterfaceThatIsNotThere) {
  EXPECT_THAT(StarListener::Listen("nowhere0"),
              StatusIs(kFailedPrecondition, HasSubstr("'nowhere0'")));
}

TEST(Socket, AddressesOfVersionSixAreInBrackets) {
  std::string endpoint;
  const auto port = ListenOn("[::1]", &endpoint);
  if (!port.ok()) GTEST_SKIP() << port.status();
  EXPECT_THAT(endpoint, MatchesRegex("\\[::1\\]:[0-9]+"));
  LOCKSTEP_EXPECT_OK(Connect(endpoint, /*stop=*/-1, Far()));
}

TEST(Connection, KeepsWhatDoesNotGoUntilThePeerReads) {
  std::string endpoint;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Fd port, ListenOn("127.0.0.1", &endpoint));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(Fd near, Connect(endpoint, /*stop=*/-1, Far()));
  pollfd readable = {.fd = port.get(), .events = POLLIN, .revents = 0};
  Poll({&readable, 1}, Far());
  Connection sender(std::move(near), 0);
  Connection reader(Accept(port), 32 << 20);
  std::string payload(32 << 20, '\0');
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i * i >> 7);
  sender.Send(FrameKind::kRecords, payload);
  EXPECT_TRUE(sender.sending());
  sender.SendLast(FrameKind::kGoodbye, "");
  sender.Send(FrameKind::kRecord, "after the last");
  std::vector<Frame> come;
  while (!reader.ended()) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<Frame> frame, reader.Receive());
    if (frame.has_value()) come.push_back(*frame);
    sender.Flush();
  }
  ASSERT_EQ(come.size(), 2u);
  EXPECT_TRUE(come[0].payload == payload);
  EXPECT_EQ(come[1].kind, FrameKind::kGoodbye);
}

TEST(StarForm, RefusesWhatIsNoAddress) {
  Meeting meeting(2);
  for (const char* address :
       {"", " ", "127.0.0.1:80", "127.0.0.1 12", "somewhere:80 12", "127.0.0.1:80 xyz",
        "[::1:80 12", ":80 12", "127.0.0.1: 12", "127.0.0.1:80 12 13"}) {
    meeting.address = address;
    EXPECT_THAT(meeting.Form(1), StatusIs(absl::StatusCode::kInvalidArgument)) << address;
  }
}

TEST(StarForm, RefusesAListenerOfAnotherRankThanZero) {
  Meeting meeting(2);
  EXPECT_THAT(
      Star::Form(meeting.groups[1], std::move(meeting.listener), meeting.address, nullptr),
      StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Star::Form(meeting.groups[0], nullptr, meeting.address, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(StarForm, NamesRankZeroIfNobodyListens) {
  Meeting meeting(2);
  meeting.listener.reset();
  EXPECT_THAT(meeting.Form(1), StatusIs(absl::StatusCode::kUnavailable,
                                        AllOf(HasSubstr("w0 (rank 0) was not reached"),
                                              HasSubstr("Connection refused"))));
}

TEST(StarForm, NamesAllWhoDoNotComeToAllWhoDo) {
  Meeting meeting(5);
  meeting.groups[0].deadline = absl::Seconds(1);
  EXPECT_THAT(meeting.Form({0, 1, 3}),
              Each(StatusIs(absl::StatusCode::kDeadlineExceeded,
                            "w2 (rank 2), w4 (rank 4) did not come in time")));
}

TEST(StarForm, AnEarlierDeadlineOfAnotherRankNamesThoseWhoAreTrulyMissing) {
  Meeting meeting(3);
  meeting.groups[1].deadline = absl::Seconds(1);
  EXPECT_THAT(meeting.Form({0, 1}), Each(StatusIs(absl::StatusCode::kDeadlineExceeded,
                                                  "w2 (rank 2) did not come in time")));
}

TEST(StarForm, NamesRankZeroIfItListensButDoesNotForm) {
  Meeting meeting(2, absl::Milliseconds(50));
  EXPECT_THAT(meeting.Form(1), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                        "w0 (rank 0) did not come in time"));
}

TEST(StarForm, NamesARankThatGoesAwayMeanwhile) {
  Meeting meeting(3);
  PlayRank(meeting, 2);
  EXPECT_THAT(meeting.Form({0, 1}), Each(StatusIs(absl::StatusCode::kUnavailable,
                                                  HasSubstr("w2 (rank 2) is gone"))));
}

TEST(StarForm, IsStoppedFromAnotherThreadOnAllRanksWithTheReason) {
  for (const int stopped : {0, 1}) {
    for (const bool before : {true, false}) {
      Meeting meeting(3);
      const auto stop = [&] {
        meeting.stop[stopped].Stop(absl::AbortedError("w2 will not come"));
        meeting.stop[stopped].Stop(absl::AbortedError("a later reason"));
      };
      if (before) stop();
      std::thread ranks([&] {
        EXPECT_THAT(meeting.Form({0, 1}),
                    Each(StatusIs(absl::StatusCode::kAborted, "w2 will not come")));
      });
      // By then they sleep, as a rule.
      for (int i = 0; i < 10'000 && !before; ++i) std::this_thread::yield();
      if (!before) stop();
      ranks.join();
    }
  }
}

TEST(StarForm, RanksOfDifferentEpochsLearnOfIt) {
  Meeting meeting(3);
  meeting.groups[2].epoch = Epoch(4);
  EXPECT_THAT(meeting.Form(meeting.all),
              Each(StatusIs(kFailedPrecondition,
                            HasSubstr("rank 2 is of epoch 4, w0 (rank 0) of epoch 3"))));
}

TEST(StarForm, RanksOfDifferentMembersLearnOfIt) {
  Meeting meeting(3);
  meeting.groups[1].members[2] = "x2";
  EXPECT_THAT(meeting.Form(meeting.all),
              Each(StatusIs(kFailedPrecondition,
                            HasSubstr("rank 1 has another list of members than w0 (rank 0)"))));
}

TEST(StarForm, ARankThatIsNoneIsRefused) {
  for (const std::int64_t rank : {-1, 0, 2}) {
    Meeting meeting(2);
    Hello hello = HelloOf(meeting.groups[1], meeting.address);
    hello.rank = rank;
    Connection stranger = ConnectTo(meeting.address);
    stranger.Send(FrameKind::kHello, Encode(hello));
    EXPECT_THAT(meeting.Form(0),
                StatusIs(kFailedPrecondition, HasSubstr(absl::StrCat("itself rank ", rank))));
  }
}

// Forms a star of three beside what `disturb` does first, and expects it to work.
void ExpectFormsBeside(const std::function<void(Meeting&)>& disturb) {
  Meeting meeting(3);
  disturb(meeting);
  EXPECT_THAT(meeting.Form(meeting.all), Each(IsOk()));
  EXPECT_THAT(meeting.ExchangeOn(meeting.all), Each(IsOk()));
}

absl::Status Answer(Connection& connection) {
  const std::optional<Frame> frame = AwaitFrame(connection);
  if (!frame.has_value() || frame->kind != FrameKind::kEnd) return absl::OkStatus();
  return DecodeError(frame->payload);
}

TEST(Strangers, WithWrongHellosAreToldAndDisturbNobody) {
  std::vector<Connection> strangers;
  ExpectFormsBeside([&](Meeting& meeting) {
    Hello hello = HelloOf(meeting.groups[1], meeting.address);
    ++hello.nonce;
    hello.epoch = 77;
    strangers.push_back(ConnectTo(meeting.address));
    strangers.back().Send(FrameKind::kHello, Encode(hello));
    strangers.push_back(ConnectTo(meeting.address));
    strangers.back().Send(FrameKind::kHello, "too short");
    strangers.push_back(ConnectTo(meeting.address));
    strangers.back().Send(FrameKind::kRecord, "");
    strangers.push_back(ConnectTo(meeting.address));
    ASSERT_EQ(write(strangers.back().fd(), "LS\x09", 3), 3);
    strangers.push_back(ConnectTo(meeting.address));
    ASSERT_EQ(write(strangers.back().fd(), "GET / HTTP/1.1\r\n\r\n", 18), 18);
  });
  for (Connection& stranger : strangers) {
    EXPECT_THAT(Answer(stranger), StatusIs(kFailedPrecondition, HasSubstr("w0 (rank 0) refused")));
  }
}

TEST(Strangers, WhoSayNothingOrLittleHoldNobodyUp) {
  std::vector<Connection> strangers;
  ExpectFormsBeside([&](Meeting& meeting) {
    for (int i = 0; i < 10; ++i) strangers.push_back(ConnectTo(meeting.address));
    // A frame that begins well.
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(write(strangers[i].fd(), "LS\x01\x01\x20\0\0\0half", 12), 12);
    }
    // Half open.
    for (int i = 3; i < 8; ++i) shutdown(strangers[i].fd(), SHUT_WR);
  });
}

TEST(Strangers, MoreThanAnybodyMayHoldMakeWayForRanks) {
  std::vector<Connection> strangers;
  ExpectFormsBeside([&](Meeting& meeting) {
    for (int i = 0; i < 200; ++i) strangers.push_back(ConnectTo(meeting.address));
  });
}

TEST(Strangers, WhoFloodAreCutOff) {
  ExpectFormsBeside([&](Meeting& meeting) {
    Connection stranger = ConnectTo(meeting.address);
    stranger.Send(FrameKind::kHello, std::string(1 << 20, 'x'));
  });
}

TEST(Strangers, ASecondOfOneRankIsRefusedAndTheFirstStays) {
  Meeting meeting(3);
  std::vector<absl::Status> formed;
  Connection first = PlayRank(meeting, 2);
  Connection second = PlayRank(meeting, 2);
  std::thread others([&] { formed = meeting.Form({0, 1}); });
  EXPECT_THAT(Answer(second),
              StatusIs(kFailedPrecondition, HasSubstr("w2 (rank 2) is already here")));
  const std::optional<Frame> welcome = AwaitFrame(first);
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->kind, FrameKind::kWelcome);
  others.join();
  EXPECT_THAT(formed, Each(IsOk()));
}

TEST(Strangers, AreMentionedIfARankDoesNotCome) {
  Meeting meeting(2, absl::Milliseconds(200));
  Connection stranger = ConnectTo(meeting.address);
  stranger.Send(FrameKind::kHello, Encode(Hello{}));
  EXPECT_THAT(meeting.Form(0),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("w1 (rank 1) did not come in time"),
                             HasSubstr("it wants to join another meeting"))));
}

TEST(StarForm, WhatListensButIsNoRankZeroIsSaid) {
  Meeting meeting(2);
  std::string endpoint;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Fd port, ListenOn("127.0.0.1", &endpoint));
  meeting.address = absl::StrCat(endpoint, " 12");
  std::thread server([&] {
    pollfd readable = {.fd = port.get(), .events = POLLIN, .revents = 0};
    Poll({&readable, 1}, Far());
    Connection connection(Accept(port), 1000);
    ASSERT_TRUE(AwaitFrame(connection).has_value());
    ASSERT_EQ(write(connection.fd(), "220 mail", 8), 8);
  });
  EXPECT_THAT(meeting.Form(1), StatusIs(kFailedPrecondition, HasSubstr("is not w0 (rank 0)")));
  server.join();
}

}  // namespace
}  // namespace lockstep::star
