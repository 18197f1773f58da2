#include "worker/agent/attendance.h"

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/mailbox.h"
#include "common/base/mutex.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);     // never waited for in full
constexpr absl::Duration kShort = absl::Milliseconds(5);  // waited for in full

// A coordinator moved by hand: the other end of the streams it is dialled on.
class ManualCoordinator {
 public:
  // Next message of the worker on any stream; null after a long time.
  std::optional<WorkerMessage> Next() {
    MutexLock lock(&mu_);
    if (!changed_.AwaitFor(&mu_, kLong, [this] { return read_ < sent_.size(); })) {
      return std::nullopt;
    }
    return sent_[read_++];
  }
  // The next message of this kind; others are skipped.
  template <typename M>
  M Next() {
    while (std::optional<WorkerMessage> message = Next()) {
      if (const M* found = std::get_if<M>(&*message)) return *found;
    }
    ADD_FAILURE() << "the message did not come";
    return {};
  }
  void Say(CoordinatorMessage message) {
    MutexLock lock(&mu_);
    if (sink_ != nullptr) sink_->OnMessage(std::move(message));
  }
  void End(const absl::Status& status) {
    MutexLock lock(&mu_);
    if (MessageSink* sink = std::exchange(sink_, nullptr)) sink->OnEnd(status);
  }
  // Whether the worker closed its side within a long time.
  bool AwaitClose() {
    MutexLock lock(&mu_);
    return changed_.AwaitFor(&mu_, kLong, [this] { return closed_; });
  }
  void RefuseSends() {
    MutexLock lock(&mu_);
    refuse_sends_ = true;
  }
  void EndOnClose() {
    MutexLock lock(&mu_);
    end_on_close_ = true;
  }

  class Dialer final : public StreamDialer {
   public:
    explicit Dialer(ManualCoordinator* coordinator) : coordinator_(coordinator) {}
    std::unique_ptr<MessageStream> Dial(MessageSink* sink) override {
      MutexLock lock(&coordinator_->mu_);
      coordinator_->sink_ = sink;
      coordinator_->closed_ = false;
      return std::make_unique<Stream>(coordinator_);
    }

   private:
    ManualCoordinator* const coordinator_;
  };

 private:
  class Stream final : public MessageStream {
   public:
    explicit Stream(ManualCoordinator* coordinator) : coordinator_(coordinator) {}
    ~Stream() override {
      MutexLock lock(&coordinator_->mu_);
      coordinator_->sink_ = nullptr;
    }
    absl::Status Send(WorkerMessage message) override {
      MutexLock lock(&coordinator_->mu_);
      if (std::exchange(coordinator_->refuse_sends_, false)) {
        return absl::UnavailableError("too much is queued");
      }
      coordinator_->sent_.push_back(std::move(message));
      coordinator_->changed_.SignalAll();
      return absl::OkStatus();
    }
    void Close() override {
      MutexLock lock(&coordinator_->mu_);
      coordinator_->closed_ = true;
      coordinator_->changed_.SignalAll();
      if (!coordinator_->end_on_close_) return;
      if (MessageSink* sink = std::exchange(coordinator_->sink_, nullptr)) {
        sink->OnEnd(absl::OkStatus());
      }
    }

   private:
    ManualCoordinator* const coordinator_;
  };

  Mutex mu_;
  CondVar changed_;
  MessageSink* sink_ = nullptr;
  std::vector<WorkerMessage> sent_;
  std::size_t read_ = 0;
  bool closed_ = false;
  bool refuse_sends_ = false;
  bool end_on_close_ = false;
};

// A policy writer that answers what a test says, and holds what it was asked.
class ManualPolicies final : public PolicyWriter {
 public:
  struct Asked {
    SyncPolicy policy;
    std::string reason;
    absl::Duration timeout;
  };

  absl::StatusOr<Revision> Revise(const SyncPolicy& policy, const std::string& reason,
                                  absl::Duration timeout) override {
    asked.push_back({policy, reason, timeout});
    return answer;
  }

  absl::StatusOr<Revision> answer = Revision(1);
  std::vector<Asked> asked;
};

class AttendanceTest : public testing::Test {
 protected:
  // Attends, with the heartbeats far apart.
  void Attend() {
    coordinator_.Next<Hello>();
    coordinator_.Say(Welcome{.generation = Generation(1),
                             .lease = absl::Hours(3),
                             .heartbeat_interval = absl::Hours(1)});
    LOCKSTEP_ASSERT_OK(link_.AwaitWelcome(kLong));
  }
  void Join(int epoch) {
    coordinator_.Say(Proposal{.epoch = Epoch(epoch), .members = {"a", "b"}});
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Proposal proposal, link_.AwaitProposal(kLong));
    ASSERT_EQ(proposal.epoch, Epoch(epoch));
  }

  ManualCoordinator coordinator_;
  ManualPolicies* const policies_ = new ManualPolicies();  // the link's
  Attendance link_{{.job = "j", .worker = "b", .incarnation = Incarnation(7)},
                   std::make_unique<ManualCoordinator::Dialer>(&coordinator_),
                   std::unique_ptr<PolicyWriter>(policies_)};
};

TEST_F(AttendanceTest, JoinsAnEpochAndStarts) {
  Attend();
  Join(3);
  std::thread coordinator([this] {
    EXPECT_EQ(coordinator_.Next<Endpoint>().bytes, "here");
    coordinator_.Say(Endpoint{Epoch(3), "here"});
    EXPECT_EQ(coordinator_.Next<Ready>().plan_digest, 9u);
    coordinator_.Say(Start{Epoch(3)});
  });
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string bytes,
                                link_.ExchangeEndpoint(Epoch(3), "here", kLong));
  EXPECT_EQ(bytes, "here");
  LOCKSTEP_EXPECT_OK(link_.AwaitStart({.epoch = Epoch(3), .plan_digest = 9}, kLong));
  coordinator.join();
}

TEST_F(AttendanceTest, EachWaitSaysWhatItWaitedFor) {
  EXPECT_THAT(link_.AwaitWelcome(kShort),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no answer within 5ms")));
  EXPECT_THAT(link_.AwaitProposal(kShort),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("waited 5ms for an epoch of job 'j'"),
                             HasSubstr("has not answered"))));
  Attend();
  EXPECT_THAT(link_.AwaitProposal(kShort),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("waited 5ms for an epoch of job 'j'"),
                             HasSubstr("once enough workers attend"))));
  coordinator_.Say(Waiting{"waits for 1 of 2 workers: a is missing"});
  EXPECT_THAT(link_.AwaitProposal(kShort),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("waits for 1 of 2 workers: a is missing")));
  Join(3);
  EXPECT_THAT(link_.ExchangeEndpoint(Epoch(3), std::nullopt, kShort),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("waited 5ms for the endpoint of rank 0 in epoch 3")));
  EXPECT_THAT(link_.AwaitStart({.epoch = Epoch(3)}, kShort),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("for the start of epoch 3, which comes once all of its members "
                                 "(a, b) are ready")));
  coordinator_.End(absl::UnavailableError("connection reset"));
  EXPECT_THAT(link_.AwaitStart({.epoch = Epoch(3)}, kShort),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("the coordinator cannot be reached: connection reset")));
}

TEST_F(AttendanceTest, APolicyRevisionIsAskedForAndItsAnswerHandedOn) {
  Attend();
  const SyncPolicy policy = {.ignore_list = {"ema.**"}};
  policies_->answer = Revision(4);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Revision revision,
                                link_.RevisePolicy(policy, "EMA drifts on purpose", kShort));
  EXPECT_EQ(revision, Revision(4));
  ASSERT_EQ(policies_->asked.size(), 1u);
  EXPECT_EQ(policies_->asked[0].policy, policy);
  EXPECT_EQ(policies_->asked[0].reason, "EMA drifts on purpose");
  EXPECT_EQ(policies_->asked[0].timeout, kShort);

  policies_->answer = absl::InvalidArgumentError("'ema.**' matches no buffer");
  EXPECT_THAT(link_.RevisePolicy(policy, "", kShort),
              StatusIs(absl::StatusCode::kInvalidArgument, "'ema.**' matches no buffer"));
}

TEST_F(AttendanceTest, AWorkerThatIsOutOfTheJobRevisesNothing) {
  coordinator_.Next<Hello>();
  coordinator_.End(absl::NotFoundError("no such job"));
  EXPECT_THAT(link_.RevisePolicy({}, "", kShort),
              StatusIs(absl::StatusCode::kNotFound, "no such job"));
  link_.Leave(absl::OkStatus());
  EXPECT_FALSE(link_.RevisePolicy({}, "", kShort).ok());
  EXPECT_TRUE(policies_->asked.empty());
}

TEST_F(AttendanceTest, RefusesAnEndpointThatIsTooLarge) {
  Attend();
  Join(3);
  EXPECT_THAT(link_.ExchangeEndpoint(Epoch(3), std::string(4097, 'x'), kLong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 4096")));
}

TEST_F(AttendanceTest, AnAbortReachesWaitersAndTheCallback) {
  Attend();
  Join(3);
  Mailbox<absl::Status> heard(10);
  link_.OnAbort([&](const absl::Status& why) { LOCKSTEP_EXPECT_OK(heard.Post(why)); });
  std::thread waiter([this] {
    EXPECT_THAT(link_.ExchangeEndpoint(Epoch(3), std::nullopt, kLong),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("a is lost")));
  });
  coordinator_.Say(AbortEpoch{Epoch(3), absl::UnavailableError("a is lost")});
  waiter.join();
  const std::vector<absl::Status> first = heard.Drain(kLong);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_THAT(first[0], StatusIs(absl::StatusCode::kAborted, HasSubstr("a is lost")));

  // Late to hear of it: at once. Called once for each epoch.
  link_.OnAbort([&](const absl::Status& why) { LOCKSTEP_EXPECT_OK(heard.Post(why)); });
  EXPECT_EQ(heard.Drain(kLong).size(), 1u);
  Join(4);
  coordinator_.Say(AbortEpoch{Epoch(4), absl::UnavailableError("b is lost")});
  const std::vector<absl::Status> second = heard.Drain(kLong);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_THAT(second[0], StatusIs(absl::StatusCode::kAborted, HasSubstr("b is lost")));
  link_.OnAbort(nullptr);
}

TEST_F(AttendanceTest, AStoppedEpochHasNoCallbackAndTheNextOneIsAwaited) {
  Attend();
  Join(3);
  Mailbox<absl::Status> heard(10);
  link_.OnAbort([&](const absl::Status& why) { LOCKSTEP_EXPECT_OK(heard.Post(why)); });
  link_.ReportStopped(Epoch(3), 7, absl::UnavailableError("lost a"));
  const EpochStopped stopped = coordinator_.Next<EpochStopped>();
  EXPECT_EQ(stopped.epoch, Epoch(3));
  EXPECT_EQ(stopped.step, 7);
  EXPECT_THAT(stopped.why, StatusIs(absl::StatusCode::kUnavailable, "lost a"));
  EXPECT_THAT(link_.ExchangeEndpoint(Epoch(3), std::nullopt, kLong),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("lost a")));
  coordinator_.Say(AbortEpoch{Epoch(3), absl::UnavailableError("b stopped")});
  Join(4);
  coordinator_.Say(AbortEpoch{Epoch(4), absl::UnavailableError("b is lost")});
  const std::vector<absl::Status> calls = heard.Drain(kLong);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_THAT(calls[0], StatusIs(absl::StatusCode::kAborted, HasSubstr("b is lost")));
  link_.OnAbort(nullptr);
}

TEST_F(AttendanceTest, ARemovedCallbackIsNotRunningAnyMore) {
  Attend();
  Join(1);
  Mailbox<int> entered(1);
  Mailbox<int> never(1);
  bool returned = false;  // unguarded: a race with the callback is TSan's find
  link_.OnAbort([&](const absl::Status&) {
    LOCKSTEP_EXPECT_OK(entered.Post(1));
    never.Drain(kShort);
    returned = true;
  });
  coordinator_.Say(AbortEpoch{Epoch(1), absl::UnavailableError("lost")});
  ASSERT_EQ(entered.Drain(kLong).size(), 1u);
  link_.OnAbort(nullptr);
  EXPECT_TRUE(returned);
}

TEST_F(AttendanceTest, ACallbackMayRemoveItself) {
  Attend();
  Join(1);
  Mailbox<int> removed(1);
  link_.OnAbort([&](const absl::Status&) {
    link_.OnAbort(nullptr);
    LOCKSTEP_EXPECT_OK(removed.Post(1));
  });
  coordinator_.Say(AbortEpoch{Epoch(1), absl::UnavailableError("lost")});
  EXPECT_EQ(removed.Drain(kLong).size(), 1u);
  link_.OnAbort(nullptr);
}

TEST_F(AttendanceTest, AFinalStatusReachesEveryWaiterAndTheCallback) {
  Attend();
  Join(3);
  Mailbox<absl::Status> heard(10);
  link_.OnAbort([&](const absl::Status& why) { LOCKSTEP_EXPECT_OK(heard.Post(why)); });
  const auto is_final = StatusIs(absl::StatusCode::kNotFound, "no such job");
  std::thread proposal([&] { EXPECT_THAT(link_.AwaitProposal(kLong), is_final); });
  std::thread endpoint([&] {
    EXPECT_THAT(link_.ExchangeEndpoint(Epoch(3), std::nullopt, kLong), is_final);
  });
  std::thread start([&] { EXPECT_THAT(link_.AwaitStart({.epoch = Epoch(3)}, kLong), is_final); });
  coordinator_.Next<Ready>();
  coordinator_.End(absl::NotFoundError("no such job"));
  proposal.join();
  endpoint.join();
  start.join();
  const std::vector<absl::Status> calls = heard.Drain(kLong);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_THAT(calls[0], is_final);
  link_.OnAbort(nullptr);
  link_.Leave(absl::OkStatus());
}

TEST_F(AttendanceTest, TrainingGoesOnWithoutACoordinatorAndIsReportedAfterwards) {
  Attend();
  Join(3);
  coordinator_.Say(NewEntries{{{LogNumber(1), SyncOnce{}}}});
  coordinator_.End(absl::UnavailableError("connection reset"));
  EXPECT_EQ(link_.EntriesAfter(LogNumber()).size(), 1u);
  link_.ReportApplied(LogNumber(1), 8);
  link_.ReportProgress(9, Phase::kTraining, {{"loss", 0.25}}, {.syncs = 3, .bytes = 24});

  const Hello hello = coordinator_.Next<Hello>();
  EXPECT_EQ(hello.epoch, Epoch(3));
  EXPECT_EQ(hello.log_number, LogNumber(1));
  EXPECT_EQ(coordinator_.Next<Applied>(), (Applied{Epoch(3), LogNumber(1), 8}));
  coordinator_.Say(Welcome{.generation = Generation(2),
                           .lease = absl::Hours(3),
                           .heartbeat_interval = absl::Hours(1)});
  const Heartbeat heartbeat = coordinator_.Next<Heartbeat>();
  EXPECT_EQ(heartbeat.epoch, Epoch(3));
  EXPECT_EQ(heartbeat.step, 9);
  EXPECT_EQ(heartbeat.metrics.at("loss"), 0.25);
  EXPECT_EQ(heartbeat.sync, (SyncCounters{.syncs = 3, .bytes = 24}));
}

TEST_F(AttendanceTest, BeatsAtTheIntervalOfTheWelcome) {
  coordinator_.Next<Hello>();
  coordinator_.Say(Welcome{.generation = Generation(1),
                           .lease = absl::Seconds(1),
                           .heartbeat_interval = absl::Milliseconds(1)});
  for (int i = 0; i < 20; ++i) coordinator_.Next<Heartbeat>();
}

TEST_F(AttendanceTest, AStreamThatTakesNoMoreIsDialledAgain) {
  Attend();
  Join(3);
  coordinator_.RefuseSends();
  link_.ReportApplied(LogNumber(1), 8);
  EXPECT_EQ(coordinator_.Next<Hello>().epoch, Epoch(3));
  EXPECT_EQ(coordinator_.Next<Applied>().step, 8);
}

TEST_F(AttendanceTest, LeavesOnceTheCoordinatorHasItsReason) {
  Attend();
  Join(3);
  coordinator_.EndOnClose();
  link_.Leave(absl::InternalError("broken"));
  EXPECT_EQ(coordinator_.Next<Leave>(), (Leave{Epoch(3), absl::InternalError("broken")}));
  EXPECT_TRUE(coordinator_.AwaitClose());
  EXPECT_THAT(link_.AwaitProposal(kLong), StatusIs(absl::StatusCode::kCancelled));
  link_.ReportApplied(LogNumber(1), 8);
  link_.Leave(absl::OkStatus());
}

TEST_F(AttendanceTest, DoesNotWaitLongForACoordinatorThatIgnoresALeave) {
  Attend();
  const absl::Time before = absl::Now();
  link_.Leave(absl::OkStatus());
  EXPECT_LT(absl::Now() - before, kLong);
  coordinator_.Next<Leave>();
}

}  // namespace
}  // namespace lockstep
