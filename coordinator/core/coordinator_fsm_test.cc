// Seeded random events against the state machine: invariants after each, the
// same effects for the same seed, and recovery that equals what lived.
#include "coordinator/core/coordinator_fsm.h"

#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "coordinator/core/durable_text.h"
#include "coordinator/core/effects_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Ranks may have queues of different lengths (0: none).
Manifest Model(int variant, std::int64_t queue = 0) {
  Manifest manifest;
  manifest.parameters = {{{"fc.weight", DType::kFloat32, {10 + variant, 8}}, true}};
  manifest.buffers = {{"bn.running_mean", DType::kFloat32, {8}}};
  if (queue > 0) manifest.buffers.push_back({"queue", DType::kFloat32, {queue}});
  return manifest;
}

// A coordinator, and a world that says to it what comes to its mind: mostly what
// fits, sometimes what is stale, doubled or wrong.
class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed) : prng_(seed) { Restart(); }

  void Do(int events) {
    for (int i = 0; i < events && !testing::Test::HasFailure(); ++i) One();
    if (!turn_.empty()) TakeTurn();
  }

  // The faults stop: workers of a new start come and do what they are told.
  // Returns whether job `a` runs within a bound.
  bool Heal() {
    JobSpec spec;
    spec.name = "a";
    Step(RequestReceived{RequestId(++requests_), absl::UnixEpoch(), CreateJob{spec}});
    std::map<std::string, StreamId> greeted;
    for (int round = 0; round < 200; ++round) {
      now_ = now_ + absl::Milliseconds(500);
      Step(Tick{});
      const JobState& job = State().jobs.at("a");
      if (job.stage == JobStage::kRunning &&
          job.workers.begin()->second.incarnation == Incarnation(1000)) {
        return true;
      }
      for (int i = 0; i < 4; ++i) {
        const std::string worker = absl::StrCat("w", i);
        if (!greeted.contains(worker) || !streams_.contains(greeted[worker])) {
          greeted[worker] = StreamId(++opened_);
          streams_[greeted[worker]] = {"a", worker};
          Step(MessageReceived{greeted[worker],
                               Hello{.job = "a",
                                     .worker = worker,
                                     .incarnation = Incarnation(1000),
                                     .manifest = job.manifest.value_or(Model(0)),
                                     .transport = "shm"}});
        } else if (job.epoch) {
          Step(MessageReceived{greeted[worker], Ready{job.epoch->id, job.epoch->plan.Digest()}});
        } else {
          Step(MessageReceived{greeted[worker], Heartbeat{}});
        }
      }
    }
    return false;
  }

  std::uint64_t digest() const { return digester_.Finish(); }
  const std::vector<Record>& records() const { return records_; }
  const std::map<std::size_t, std::string>& durable() const { return durable_; }
  int started() const { return started_; }
  std::int64_t applied() const { return applied_; }
  // Epochs that ended so.
  int regrouped() const { return regrouped_; }
  int stalled() const { return stalled_; }
  int returns() const { return returns_; }

 private:
  struct Stream {
    std::string job, worker;
  };

  void One() {
    now_ = now_ + absl::Milliseconds(prng_.Between(0, 200));
    if (wake_at_ && *wake_at_ <= now_ && prng_.Below(4) > 0) {
      Step(Tick{});
      return;
    }
    const std::uint64_t dice = prng_.Below(1000);
    if (dice < 3) {
      Restart();
    } else if (dice < 80) {
      Step(RequestReceived{RequestId(++requests_), absl::FromUnixSeconds(requests_), AnyRequest()});
    } else if (dice < 150) {
      GreetOnce();
    } else if (dice < 165 && !streams_.empty()) {
      Step(StreamBroke{AnyStream()});
    } else if (dice < 175) {
      Step(Tick{});
    } else if (!streams_.empty()) {
      const StreamId stream = AnyStream();
      Step(MessageReceived{stream, AnyMessage(streams_.at(stream))});
    }
  }

  Request AnyRequest() {
    const std::string job = AnyJob();
    switch (prng_.Below(11)) {
      case 8:
        return CheckpointNow{job};
      case 9:
      case 10:
        return DrainWorker{job, absl::StrCat("w", prng_.Below(5)), prng_.Below(3) == 0};
      case 0:
      case 1: {
        JobSpec spec;
        spec.name = job;
        spec.min_workers = static_cast<int>(prng_.Between(1, 3));
        spec.max_workers = prng_.Below(2) ? 0 : 4;
        if (prng_.Below(3) == 0) spec.workers = {"w0", "w1", "w2", "w3"};
        spec.join_window = absl::Seconds(1);
        spec.lease = absl::Seconds(5);
        spec.ready_timeout = absl::Seconds(4);
        spec.stall_timeout = absl::Seconds(prng_.Between(0, 4));
        spec.policy.ignore_list = {"queue"};
        return CreateJob{spec};
      }
      case 2:
        return DeleteJob{job};
      case 3:
        return SyncNow{job, {.buffers = prng_.Below(5) > 0, .root = RootRank{prng_.Between(0, 3)}}};
      default: {
        UpdateSyncPolicy update = {.job = job, .author = absl::StrCat("a", prng_.Below(3))};
        if (prng_.Below(20)) update.policy.ignore_list = {"queue"};
        if (prng_.Below(3) == 0) {
          update.policy.ignore_list.push_back(prng_.Below(3) ? "bn.*" : "none");
        }
        update.allow_unmatched = prng_.Below(4) > 0;
        update.policy.schedule.every_steps = prng_.Between(-1, 20);
        update.validate_only = prng_.Below(5) == 0;
        const auto it = State().jobs.find(job);
        if (it != State().jobs.end() && prng_.Below(3)) {
          update.etag = it->second.policies[prng_.Below(it->second.policies.size())].etag;
        }
        return update;
      }
    }
  }

  void GreetOnce() {
    const std::string job = AnyJob();
    const std::string worker = absl::StrCat("w", prng_.Below(5));
    Hello hello = {.job = job,
                   .worker = worker,
                   .incarnation = Incarnation(prng_.Between(1, 2)),
                   .manifest = Model(prng_.Below(40) == 0,
                                     prng_.Below(4) ? 1 : prng_.Between(0, 2)),
                   .transport = prng_.Below(60) ? "shm" : "gloo"};
    const auto it = State().jobs.find(job);
    if (it != State().jobs.end()) {
      const auto known = it->second.workers.find(worker);
      if (known != it->second.workers.end()) {
        hello.incarnation = Incarnation(known->second.incarnation.value() +
                                        (prng_.Below(30) ? 0 : prng_.Between(-1, 1)));
      }
      if (it->second.epoch && prng_.Below(20)) hello.epoch = it->second.epoch->id;
      if (!it->second.epoch && prng_.Below(10) == 0) hello.epoch = it->second.last_epoch;
      hello.log_number = LogNumber(prng_.Between(0, it->second.last_number().value()));
    }
    const StreamId stream(++opened_);
    streams_[stream] = {job, worker};
    Step(MessageReceived{stream, hello});
  }

  WorkerMessage AnyMessage(const Stream& stream) {
    const auto it = State().jobs.find(stream.job);
    if (it == State().jobs.end() || !it->second.epoch) {
      return Heartbeat{.epoch = Epoch(static_cast<std::int64_t>(prng_.Below(3))),
                       .step = prng_.Between(0, 9)};
    }
    const JobState& job = it->second;
    const Epoch epoch = prng_.Below(20) ? job.epoch->id : Epoch(prng_.Between(0, 9));
    switch (prng_.Below(14)) {
      case 12:
        if (prng_.Below(8) > 0) break;
        return EpochStopped{epoch, 10 * job.epoch->regroup.value(),
                            prng_.Below(3) ? absl::OkStatus() : absl::UnavailableError("reset")};
      case 13:
        if (!job.epoch->regroup.valid()) break;
        return EpochStopped{epoch, 10 * job.epoch->regroup.value(), absl::OkStatus()};
      case 0:
        return Endpoint{epoch, absl::StrCat("e", prng_.Below(9))};
      case 1:
      case 2:
      case 3:
      case 4:
        return Ready{epoch, prng_.Below(100) ? job.epoch->plan.Digest() : 7, 100};
      case 5:
      case 6:
      case 7: {
        // All apply an entry after the same step, as workers do.
        const std::int64_t number =
            prng_.Between(job.epoch->log_number.value(), job.last_number().value() + 1);
        return Applied{epoch, LogNumber(number), 10 * number};
      }
      case 8:
        if (prng_.Below(10) == 0) {
          return Leave{epoch, prng_.Below(4) ? absl::OkStatus() : absl::InternalError("disk")};
        }
        break;
      default:
        break;
    }
    return Heartbeat{.epoch = epoch,
                     .step = prng_.Between(0, 99),
                     .phase = Phase::kTraining,
                     .metrics = {{"loss", 0.5}},
                     .sync = {.syncs = 1}};
  }

  std::string AnyJob() { return prng_.Below(3) ? "a" : "b"; }
  StreamId AnyStream() {
    auto it = streams_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(prng_.Below(streams_.size())));
    return it->first;
  }

  void Restart() {
    absl::StatusOr<CoordinatorFsm> fsm = CoordinatorFsm::Recover(records_, now_);
    ASSERT_THAT(fsm, IsOk());
    fsm_ = *std::move(fsm);
    streams_.clear();
    turn_.clear();
    Take(fsm_->Begin());
  }

  // Sometimes together with those that come next.
  void Step(const Event& event) {
    turn_.push_back(event);
    const bool is_tick = std::holds_alternative<Tick>(event);
    if (!is_tick && prng_.Below(3) == 0) return;
    TakeTurn();
    if (is_tick) {
      EXPECT_TRUE(!wake_at_ || *wake_at_ > now_) << "a Tick leaves work undone";
    }
  }

  void TakeTurn() { Take(fsm_->Step(now_, std::exchange(turn_, {}))); }

  void Take(const Effects& effects) {
    LOCKSTEP_EXPECT_OK(CheckInvariants(State()));
    for (const std::string& line : EffectLines(effects, [](StreamId stream) {
           return absl::StrCat("s", stream.value());
         })) {
      digester_.Add(absl::string_view(line));
    }
    for (const Outgoing& out : effects.send) CheckOutgoing(out);
    for (const EndStream& end : effects.end) {
      // Each stream ends once.
      EXPECT_EQ(streams_.erase(end.stream), 1u) << end.stream.value();
    }
    wake_at_ = effects.wake_at;
    digester_.Add(wake_at_ ? wake_at_->nanos() : -1);
    for (const Record& record : effects.persist) {
      started_ += std::holds_alternative<EpochStarted>(record);
      applied_ += std::holds_alternative<EntryApplied>(record);
      if (const auto* ended = std::get_if<EpochEnded>(&record)) {
        regrouped_ += absl::StrContains(ended->why, "regrouped behind");
        stalled_ += absl::StrContains(ended->why, "stalled");
        returns_ += absl::StrContains(ended->why, "did not come back within");
      }
      records_.push_back(record);
    }
    durable_[records_.size()] = DurableText(State());
  }

  // Nothing goes to a stream that is over, and entries come once, in order.
  void CheckOutgoing(const Outgoing& out) {
    EXPECT_TRUE(streams_.contains(out.stream)) << out.stream.value();
    if (const auto* proposal = std::get_if<Proposal>(out.message.get())) {
      sent_[out.stream] = proposal->log_number;
    }
    if (const auto* entries = std::get_if<NewEntries>(out.message.get())) {
      for (const ControlEntry& entry : entries->entries) {
        const auto before = sent_.find(out.stream);
        if (before != sent_.end()) {
          EXPECT_EQ(entry.number, before->second.next());
        }
        sent_[out.stream] = entry.number;
      }
    }
  }

  const ClusterState& State() const { return fsm_->state(); }

  Prng prng_;
  std::optional<CoordinatorFsm> fsm_;
  MonoTime now_;
  std::vector<Event> turn_;
  std::optional<MonoTime> wake_at_;
  std::int64_t requests_ = 0, opened_ = 0, applied_ = 0;
  int started_ = 0, regrouped_ = 0, stalled_ = 0, returns_ = 0;
  std::map<StreamId, Stream> streams_;  // those not ended
  std::map<StreamId, LogNumber> sent_;
  std::vector<Record> records_;
  std::map<std::size_t, std::string> durable_;  // by number of records
  Digester digester_;
};

TEST(CoordinatorFsm, HoldsItsInvariantsUnderRandomEventsAndRunsAgainAfterThem) {
  int started = 0, regrouped = 0, stalled = 0, returns = 0;
  std::int64_t applied = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomRun run(seed);
    run.Do(8000);
    EXPECT_TRUE(run.Heal());
    if (HasFailure()) return;
    started += run.started();
    applied += run.applied();
    regrouped += run.regrouped();
    stalled += run.stalled();
    returns += run.returns();
  }
  // The runs get somewhere.
  EXPECT_GT(started, 500);
  EXPECT_GT(applied, 1000);
  EXPECT_GT(regrouped, 50);
  EXPECT_GT(stalled, 50);
  EXPECT_GT(returns, 50);
}

TEST(CoordinatorFsm, DoesTheSameForTheSameSeed) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    RandomRun a(seed), b(seed), other(seed + 100);
    a.Do(2000);
    b.Do(2000);
    other.Do(2000);
    EXPECT_EQ(a.digest(), b.digest()) << seed;
    EXPECT_NE(a.digest(), other.digest()) << seed;
  }
}

TEST(CoordinatorFsm, RecoversFromEveryPrefixWhatLivedThen) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    RandomRun run(seed);
    run.Do(1500);
    const std::vector<Record>& records = run.records();
    ASSERT_GT(records.size(), 50u);
    for (std::size_t n = 0; n <= records.size(); ++n) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const CoordinatorFsm fsm,
          CoordinatorFsm::Recover(std::span(records).first(n), MonoTime()));
      LOCKSTEP_EXPECT_OK(CheckInvariants(fsm.state()));
      // Records of one event are appended together: in between nothing lived.
      const auto lived = run.durable().find(n);
      if (lived != run.durable().end()) {
        EXPECT_EQ(DurableText(fsm.state()), lived->second);
      }
    }
  }
}

TEST(CoordinatorFsm, KeepsWhatAWorkerSaysOfItsSyncsUntilItsNextEpoch) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(CoordinatorFsm fsm, CoordinatorFsm::Recover({}, MonoTime()));
  fsm.Begin();
  const auto say = [&](std::int64_t stream, WorkerMessage message) {
    fsm.Step(MonoTime(), MessageReceived{StreamId(stream), std::move(message)});
  };
  const auto greet = [&](std::int64_t stream, std::int64_t incarnation) {
    say(stream, Hello{.job = "j",
                      .worker = "w",
                      .incarnation = Incarnation(incarnation),
                      .manifest = Model(0),
                      .transport = "shm"});
  };
  const auto train = [&](std::int64_t stream, std::int64_t epoch) {
    say(stream, Ready{Epoch(epoch), fsm.state().jobs.at("j").epoch->plan.Digest()});
  };
  const auto counters = [&] { return fsm.state().jobs.at("j").workers.at("w").sync; };
  const SyncCounters seven = {.syncs = 7, .transfers = 14, .bytes = 700, .last_bytes = 100};
  JobSpec spec;
  spec.name = "j";
  fsm.Step(MonoTime(), RequestReceived{RequestId(1), absl::UnixEpoch(), CreateJob{spec}});
  greet(1, 1);
  train(1, 1);
  EXPECT_EQ(counters(), SyncCounters());
  say(1, Heartbeat{.epoch = Epoch(1), .step = 7, .sync = seven});
  EXPECT_EQ(counters(), seven);
  // Of no epoch, and of one that is over.
  say(1, Heartbeat{.sync = {.syncs = 1}});
  say(1, Heartbeat{.epoch = Epoch(9), .sync = {.syncs = 1}});
  EXPECT_EQ(counters(), seven);

  // Without an epoch of its own, the member comes back to another.
  greet(2, 1);
  EXPECT_EQ(fsm.state().jobs.at("j").epoch->id, Epoch(2));
  EXPECT_EQ(counters(), SyncCounters());
  train(2, 2);
  say(2, Heartbeat{.epoch = Epoch(2), .sync = seven});
  EXPECT_EQ(counters(), seven);
  greet(3, 2);
  EXPECT_EQ(counters(), SyncCounters());
}

// A coordinator with job `j`, and as many workers of it as it wants.
class Crowd {
 public:
  explicit Crowd(int workers) : workers_(workers) {
    fsm_.Begin();
    JobSpec spec;
    spec.name = "j";
    spec.min_workers = workers;
    fsm_.Step(MonoTime(), RequestReceived{RequestId(1), absl::UnixEpoch(), CreateJob{spec}});
  }

  // What worker i of the first `count` says, all in one turn.
  template <typename Say>
  Effects All(Say say, int count) {
    std::vector<Event> turn;
    for (int i = 1; i <= count; ++i) turn.push_back(MessageReceived{StreamId(i), say(i)});
    return fsm_.Step(MonoTime(), turn);
  }
  Effects AllGreet() { return All(HelloOf, workers_); }
  static Hello HelloOf(int i) {
    return {.job = "j",
            .worker = absl::StrCat("w", i),
            .incarnation = Incarnation(1),
            .manifest = Model(0),
            .transport = "shm"};
  }
  const JobState& job() const { return fsm_.state().jobs.at("j"); }
  CoordinatorFsm& fsm() { return fsm_; }

 private:
  const int workers_;
  CoordinatorFsm fsm_ = *CoordinatorFsm::Recover({}, MonoTime());
};

// The messages of kind M, and how many objects they are.
template <typename M>
std::pair<int, int> CountSent(const Effects& effects) {
  int sent = 0;
  std::set<SharedMessage> objects;
  for (const Outgoing& out : effects.send) {
    if (!std::holds_alternative<M>(*out.message)) continue;
    ++sent;
    objects.insert(out.message);
  }
  return {sent, static_cast<int>(objects.size())};
}

TEST(CoordinatorFsm, WhatGoesToAllMembersIsMadeOnce) {
  Crowd crowd(100);
  EXPECT_EQ(CountSent<Proposal>(crowd.AllGreet()), std::pair(100, 1));
  const std::uint64_t digest = crowd.job().epoch->plan.Digest();
  EXPECT_EQ(CountSent<Start>(crowd.All([&](int) { return Ready{Epoch(1), digest}; }, 100)),
            std::pair(100, 1));
  EXPECT_EQ(CountSent<NewEntries>(crowd.fsm().Step(
                MonoTime(), RequestReceived{RequestId(2), absl::UnixEpoch(), SyncNow{"j", {}}})),
            std::pair(100, 1));
  EXPECT_EQ(CountSent<AbortEpoch>(crowd.All(
                [](int) { return Leave{Epoch(1), absl::InternalError("disk")}; }, 1)),
            std::pair(99, 1));
}

TEST(CoordinatorFsm, AnEpochMayHaveAsManyMembersAsAJobMayHaveWorkers) {
  Crowd crowd(kMaxWorkersPerJob);
  crowd.AllGreet();
  ASSERT_TRUE(crowd.job().epoch.has_value()) << crowd.job().detail;
  EXPECT_EQ(crowd.job().epoch->plan.shards.size(), static_cast<std::size_t>(kMaxWorkersPerJob));
}

TEST(CoordinatorFsm, ARequestSeesWhatTheMessagesBeforeItInItsTurnBroughtAbout) {
  Crowd crowd(1);
  const Event turn[] = {
      MessageReceived{StreamId(1), Crowd::HelloOf(1)},
      RequestReceived{RequestId(2), absl::UnixEpoch(), SyncNow{"j", {}}}};
  const Effects effects = crowd.fsm().Step(MonoTime(), turn);
  ASSERT_EQ(effects.answers.size(), 1u);
  EXPECT_THAT(effects.answers.front().reply,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("epoch 1 is proposed")));
}

TEST(CoordinatorFsm, AHeartbeatBringsNoJobToRest) {
  Crowd crowd(1);
  EXPECT_THAT(crowd.AllGreet().settled_jobs, testing::ElementsAre("j"));
  const Effects effects = crowd.All([](int) { return Heartbeat{}; }, 1);
  EXPECT_THAT(effects.settled_jobs, testing::IsEmpty());
  EXPECT_THAT(effects.changed_jobs, testing::ElementsAre("j"));
}

TEST(CoordinatorFsm, SaysWhichRecordContradictsThoseBefore) {
  const std::vector<Record> records = {GenerationStarted{Generation(1)},
                                       EpochStarted{"none", Epoch(1)}};
  EXPECT_THAT(CoordinatorFsm::Recover(records, MonoTime()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record 2 of 2")));
}

TEST(CoordinatorFsm, ReportsAnEntryThatTookEffectAtDifferentSteps) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(CoordinatorFsm fsm, CoordinatorFsm::Recover({}, MonoTime()));
  fsm.Begin();
  JobSpec spec;
  spec.name = "j";
  spec.min_workers = 2;
  const auto say = [&](std::int64_t stream, WorkerMessage message) {
    fsm.Step(MonoTime(), MessageReceived{StreamId(stream), std::move(message)});
  };
  fsm.Step(MonoTime(), RequestReceived{RequestId(1), absl::UnixEpoch(), CreateJob{spec}});
  for (int i = 1; i <= 2; ++i) {
    say(i, Hello{.job = "j",
                 .worker = absl::StrCat("w", i),
                 .incarnation = Incarnation(1),
                 .manifest = Model(0),
                 .transport = "shm"});
  }
  const std::uint64_t digest = fsm.state().jobs.at("j").epoch->plan.Digest();
  for (int i = 1; i <= 2; ++i) say(i, Ready{Epoch(1), digest});
  fsm.Step(MonoTime(), RequestReceived{RequestId(2), absl::UnixEpoch(), SyncNow{"j", {}}});
  say(1, Applied{Epoch(1), LogNumber(1), 7});
  LOCKSTEP_EXPECT_OK(CheckInvariants(fsm.state()));
  say(2, Applied{Epoch(1), LogNumber(1), 8});
  EXPECT_THAT(CheckInvariants(fsm.state()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("entry 1")));
  EXPECT_THAT(fsm.state().jobs.at("j").detail,
              HasSubstr("entry 1 took effect after step 7 on w1 but after step 8 on w2"));
}

}  // namespace
}  // namespace lockstep
