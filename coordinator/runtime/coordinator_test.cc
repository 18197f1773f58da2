#include "coordinator/runtime/coordinator.h"

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::Duration kDeadline = absl::Seconds(20);

// Moved by the test while the coordinator's thread reads it.
class SharedManualClock final : public Clock {
 public:
  MonoTime Now() const override {
    MutexLock lock(&mu_);
    return now_;
  }
  absl::Time WallNow() const override { return absl::UnixEpoch(); }
  void Advance(absl::Duration by) {
    MutexLock lock(&mu_);
    now_ = now_ + by;
  }

 private:
  mutable Mutex mu_;
  MonoTime now_ ABSL_GUARDED_BY(mu_);
};

// Records outlive the coordinator, as on a disk; may be told to fail.
struct Disk {
  Mutex mu;
  std::vector<Record> records ABSL_GUARDED_BY(mu);
  absl::Status failure ABSL_GUARDED_BY(mu);

  template <typename R>
  int Count() {
    MutexLock lock(&mu);
    int count = 0;
    for (const Record& record : records) count += std::holds_alternative<R>(record) ? 1 : 0;
    return count;
  }
  void FailFromNowOn() {
    MutexLock lock(&mu);
    failure = absl::ResourceExhaustedError("the disk is full");
  }
};

class DiskStore final : public Store {
 public:
  explicit DiskStore(std::shared_ptr<Disk> disk) : disk_(std::move(disk)) {}
  absl::StatusOr<std::vector<Record>> Load() override {
    MutexLock lock(&disk_->mu);
    return disk_->records;
  }
  absl::Status Append(std::span<const Record> records) override {
    MutexLock lock(&disk_->mu);
    if (!disk_->failure.ok()) return disk_->failure;
    disk_->records.insert(disk_->records.end(), records.begin(), records.end());
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<Disk> disk_;
};

// Collects what a worker hears.
class CollectingSink final : public AttendSink {
 public:
  void Send(const SharedMessage& message) override {
    {
      MutexLock lock(&mu_);
      messages_.push_back(*message);
    }
    changed_.SignalAll();
  }
  void End(const absl::Status& why) override {
    {
      MutexLock lock(&mu_);
      end_ = why;
    }
    changed_.SignalAll();
  }
  template <typename M>
  bool AwaitMessage() {
    MutexLock lock(&mu_);
    return changed_.AwaitFor(&mu_, kDeadline, [this] {
      for (const CoordinatorMessage& message : messages_) {
        if (std::holds_alternative<M>(message)) return true;
      }
      return false;
    });
  }
  absl::Status AwaitEnd() {
    MutexLock lock(&mu_);
    if (!changed_.AwaitFor(&mu_, kDeadline, [this] { return end_.has_value(); })) {
      return absl::DeadlineExceededError("the stream did not end");
    }
    return *end_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<CoordinatorMessage> messages_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

template <typename T>
T Get(std::future<T> future) {
  if (future.wait_for(absl::ToChronoSeconds(kDeadline)) != std::future_status::ready) {
    ADD_FAILURE() << "no answer within the deadline";
    std::abort();
  }
  return future.get();
}

absl::StatusOr<Reply> Ask(Coordinator& coordinator, Request request) {
  auto answer = std::make_shared<std::promise<absl::StatusOr<Reply>>>();
  coordinator.Submit(std::move(request), [answer](absl::StatusOr<Reply> reply) {
    answer->set_value(std::move(reply));
  });
  return Get(answer->get_future());
}

std::optional<ClusterState> Look(Coordinator& coordinator) {
  auto seen = std::make_shared<std::promise<std::optional<ClusterState>>>();
  coordinator.Read([seen](const ClusterState* state) {
    seen->set_value(state == nullptr ? std::nullopt : std::make_optional(*state));
  });
  return Get(seen->get_future());
}

CreateJob NewJob(const std::string& name, absl::Duration join_window = absl::Seconds(5)) {
  CreateJob create;
  create.spec.name = name;
  create.spec.join_window = join_window;
  // More may come, so that the join window counts.
  create.spec.max_workers = 2;
  return create;
}

Hello NewHello(const std::string& job) {
  return Hello{.job = job, .worker = "w0", .incarnation = Incarnation(1), .transport = "test"};
}

class CoordinatorRuntime : public testing::Test {
 protected:
  std::unique_ptr<Coordinator> StartOn(const Clock* clock) {
    auto started = Coordinator::Start(std::make_unique<DiskStore>(disk_), clock);
    EXPECT_THAT(started, IsOk());
    return *std::move(started);
  }

  const std::shared_ptr<Disk> disk_ = std::make_shared<Disk>();
  SharedManualClock clock_;
};

TEST_F(CoordinatorRuntime, AnswersAChangeOnlyWhenItIsDurable) {
  const auto coordinator = StartOn(&clock_);
  std::promise<int> stored;
  coordinator->Submit(NewJob("mnist"), [&](absl::StatusOr<Reply> reply) {
    EXPECT_THAT(reply, IsOk());
    stored.set_value(disk_->Count<JobCreated>());
  });
  EXPECT_EQ(Get(stored.get_future()), 1);
}

TEST_F(CoordinatorRuntime, ALookSeesTheChangesAnsweredBefore) {
  const auto coordinator = StartOn(&clock_);
  ASSERT_THAT(Ask(*coordinator, NewJob("mnist")), IsOk());
  EXPECT_TRUE(Look(*coordinator)->jobs.contains("mnist"));
}

TEST_F(CoordinatorRuntime, ALookFromAnAnswerDoesNotWait) {
  const auto coordinator = StartOn(&clock_);
  std::promise<bool> seen;
  coordinator->Submit(NewJob("mnist"), [&](const absl::StatusOr<Reply>&) {
    bool looked = false;
    coordinator->Read([&](const ClusterState* state) {
      looked = state != nullptr && state->jobs.contains("mnist");
    });
    seen.set_value(looked);
  });
  EXPECT_TRUE(Get(seen.get_future()));
}

TEST_F(CoordinatorRuntime, BoundsTheNumberOfWatches) {
  const auto coordinator = StartOn(&clock_);
  absl::Status end;
  Coordinator::WatchId last;
  int opened = 0;
  for (; end.ok() && opened < 20'000; ++opened) {
    // Called within Watch() if it is refused.
    auto refused = std::make_shared<std::promise<absl::Status>>();
    std::future<absl::Status> refusal = refused->get_future();
    last = coordinator->Watch(
        "mnist", [](const JobState*) {},
        [refused](const absl::Status& why) { refused->set_value(why); });
    if (refusal.wait_for(std::chrono::seconds(0)) == std::future_status::ready) end = refusal.get();
  }
  EXPECT_EQ(opened, 10'001);
  EXPECT_THAT(end, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("10000 watches")));
  coordinator->CloseWatch(last);
}

TEST_F(CoordinatorRuntime, ARefusalIsAnsweredToo) {
  const auto coordinator = StartOn(&clock_);
  EXPECT_THAT(Ask(*coordinator, DeleteJob{"none"}), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CoordinatorRuntime, GoesOnFromItsStoreInANewGeneration) {
  std::unique_ptr<Coordinator> coordinator = StartOn(&clock_);
  ASSERT_THAT(Ask(*coordinator, NewJob("mnist")), IsOk());
  const Generation before = Look(*coordinator)->generation;
  coordinator.reset();
  coordinator = StartOn(&clock_);
  const std::optional<ClusterState> state = Look(*coordinator);
  EXPECT_TRUE(state->jobs.contains("mnist"));
  EXPECT_GT(state->generation, before);
}

TEST_F(CoordinatorRuntime, StopsWhenItCannotStore) {
  const auto coordinator = StartOn(&clock_);
  ASSERT_THAT(Ask(*coordinator, NewJob("mnist")), IsOk());
  const auto sink = std::make_shared<CollectingSink>();
  ASSERT_THAT(coordinator->OpenStream(sink), IsOk());
  EXPECT_THAT(coordinator->health(), IsOk());

  disk_->FailFromNowOn();
  EXPECT_THAT(Ask(*coordinator, NewJob("other")),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("disk is full")));
  coordinator->AwaitEnd();
  EXPECT_THAT(coordinator->health(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("disk is full")));
  EXPECT_THAT(sink->AwaitEnd(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Look(*coordinator), std::nullopt);
  EXPECT_THAT(Ask(*coordinator, NewJob("third")), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(coordinator->OpenStream(sink), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CoordinatorRuntime, WelcomesAWorkerOnItsStream) {
  const auto coordinator = StartOn(&clock_);
  ASSERT_THAT(Ask(*coordinator, NewJob("mnist")), IsOk());
  const auto sink = std::make_shared<CollectingSink>();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const StreamId stream, coordinator->OpenStream(sink));
  coordinator->PostMessage(stream, NewHello("mnist"));
  EXPECT_TRUE(sink->AwaitMessage<Welcome>());
  EXPECT_TRUE(Look(*coordinator)->jobs.at("mnist").workers.contains("w0"));
}

TEST_F(CoordinatorRuntime, EndsTheStreamOfAWorkerThatItTurnsAway) {
  const auto coordinator = StartOn(&clock_);
  const auto sink = std::make_shared<CollectingSink>();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const StreamId stream, coordinator->OpenStream(sink));
  coordinator->PostMessage(stream, NewHello("none"));
  EXPECT_THAT(sink->AwaitEnd(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CoordinatorRuntime, WakesByItselfWhenTimeMatters) {
  const RealClock clock;
  const auto coordinator = StartOn(&clock);
  ASSERT_THAT(Ask(*coordinator, NewJob("mnist", absl::Milliseconds(20))), IsOk());
  const auto sink = std::make_shared<CollectingSink>();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const StreamId stream, coordinator->OpenStream(sink));
  coordinator->PostMessage(stream, NewHello("mnist"));
  EXPECT_TRUE(sink->AwaitMessage<Proposal>());
}

TEST_F(CoordinatorRuntime, AWorkerWhoseStreamBrokeIsLostWhenItsLeaseIsOver) {
  const auto coordinator = StartOn(&clock_);
  ASSERT_THAT(Ask(*coordinator, NewJob("mnist", absl::Hours(1))), IsOk());
  const auto sink = std::make_shared<CollectingSink>();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const StreamId stream, coordinator->OpenStream(sink));
  coordinator->PostMessage(stream, NewHello("mnist"));
  coordinator->PostStreamBroke(stream);
  ASSERT_TRUE(Look(*coordinator)->jobs.at("mnist").workers.contains("w0"));
  clock_.Advance(absl::Minutes(1));
  // The next turn of the loop notices the time before it lets anyone look.
  EXPECT_FALSE(Look(*coordinator)->jobs.at("mnist").workers.contains("w0"));
}

TEST_F(CoordinatorRuntime, AFloodOfMessagesEndsTheStreamAndNotTheCoordinator) {
  const auto coordinator = StartOn(&clock_);
  std::promise<void> holds;
  std::promise<void> goes_on;
  coordinator->Read([&](const ClusterState*) {
    holds.set_value();
    goes_on.get_future().wait();
  });
  holds.get_future().wait();
  const auto sink = std::make_shared<CollectingSink>();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const StreamId stream, coordinator->OpenStream(sink));
  for (int i = 0; i <= 100'000; ++i) coordinator->PostMessage(stream, Heartbeat{});
  EXPECT_THAT(Ask(*coordinator, NewJob("mnist")),
              StatusIs(absl::StatusCode::kResourceExhausted));
  goes_on.set_value();
  EXPECT_THAT(sink->AwaitEnd(), testing::Not(IsOk()));
  EXPECT_THAT(Ask(*coordinator, NewJob("mnist")), IsOk());
}

// What a watch was told, as words.
class Watched {
 public:
  void Add(const std::string& word) {
    {
      MutexLock lock(&mu_);
      words_.push_back(word);
    }
    changed_.SignalAll();
  }
  std::vector<std::string> AwaitCount(std::size_t count) {
    MutexLock lock(&mu_);
    changed_.AwaitFor(&mu_, kDeadline, [&] { return words_.size() >= count; });
    return words_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> words_ ABSL_GUARDED_BY(mu_);
};

TEST_F(CoordinatorRuntime, AWatchTellsTheStateNowAndAfterEachChangeAndOfTheEnd) {
  const auto coordinator = StartOn(&clock_);
  Watched watched;
  coordinator->Watch(
      "mnist", [&](const JobState* job) { watched.Add(job == nullptr ? "none" : job->spec.name); },
      [&](const absl::Status& why) { watched.Add(absl::StatusCodeToString(why.code())); });
  EXPECT_THAT(watched.AwaitCount(1), ElementsAre("none"));
  ASSERT_THAT(Ask(*coordinator, NewJob("mnist")), IsOk());
  EXPECT_THAT(watched.AwaitCount(2), ElementsAre("none", "mnist"));
  ASSERT_THAT(Ask(*coordinator, NewJob("other")), IsOk());
  ASSERT_THAT(Ask(*coordinator, DeleteJob{"mnist"}), IsOk());
  EXPECT_THAT(watched.AwaitCount(3), ElementsAre("none", "mnist", "none"));
  coordinator->Shutdown();
  EXPECT_THAT(watched.AwaitCount(4), ElementsAre("none", "mnist", "none", "UNAVAILABLE"));
}

TEST_F(CoordinatorRuntime, AClosedWatchIsNotToldAnything) {
  const auto coordinator = StartOn(&clock_);
  Watched watched;
  const auto watch = coordinator->Watch("mnist", [&](const JobState*) { watched.Add("told"); });
  watched.AwaitCount(1);
  coordinator->CloseWatch(watch);
  ASSERT_THAT(Ask(*coordinator, NewJob("mnist")), IsOk());
  Look(*coordinator);
  EXPECT_THAT(watched.AwaitCount(1), ElementsAre("told"));
}

TEST_F(CoordinatorRuntime, ClosingAWatchWaitsForItsCallback) {
  const auto coordinator = StartOn(&clock_);
  std::promise<void> runs;
  std::promise<void> goes_on;
  bool returned = false;
  const auto watch = coordinator->Watch("mnist", [&](const JobState*) {
    runs.set_value();
    goes_on.get_future().wait();
    returned = true;
  });
  runs.get_future().wait();
  std::future<void> closed =
      std::async(std::launch::async, [&] { coordinator->CloseWatch(watch); });
  EXPECT_EQ(closed.wait_for(std::chrono::milliseconds(10)), std::future_status::timeout);
  goes_on.set_value();
  closed.wait();
  EXPECT_TRUE(returned);
}

TEST_F(CoordinatorRuntime, AfterShutdownEverybodyIsAnswered) {
  const auto coordinator = StartOn(&clock_);
  const auto sink = std::make_shared<CollectingSink>();
  ASSERT_THAT(coordinator->OpenStream(sink), IsOk());
  coordinator->Shutdown();
  coordinator->AwaitEnd();
  EXPECT_THAT(sink->AwaitEnd(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Ask(*coordinator, NewJob("mnist")), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Look(*coordinator), std::nullopt);
  EXPECT_THAT(coordinator->health(), IsOk());
}

}  // namespace
}  // namespace lockstep
