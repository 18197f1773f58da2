#include "coordinator/core/forming.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "coordinator/core/membership.h"
#include "coordinator/core/policy_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

MonoTime At(std::int64_t seconds) { return MonoTime() + absl::Seconds(seconds); }

std::vector<std::string> Names(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(absl::StrCat("w", i));
  return names;
}

TEST(DecideEpoch, TakesTheRowOfTheTable) {
  constexpr std::optional<MonoTime> kNoWindow;
  struct Row {
    const char* name;
    int attending;
    std::optional<MonoTime> window_end;
    std::int64_t now;
    Hold hold;
    int members;
    std::optional<MonoTime> new_window_end;
  };
  const EpochRules rules = {.min_workers = 2, .max_workers = 4, .join_window = absl::Seconds(5)};
  const Row rows[] = {
      {"nobody", 0, kNoWindow, 1, Hold::kTooFew, 0, kNoWindow},
      {"one", 1, kNoWindow, 1, Hold::kTooFew, 0, kNoWindow},
      {"min is reached: the window opens", 2, kNoWindow, 1, Hold::kJoinWindowOpen, 0, At(6)},
      {"a third does not move the window", 3, At(6), 4, Hold::kJoinWindowOpen, 0, At(6)},
      {"the window is over", 3, At(6), 6, Hold::kNone, 3, kNoWindow},
      {"max closes the window", 4, At(6), 4, Hold::kNone, 4, kNoWindow},
      {"max at once", 4, kNoWindow, 1, Hold::kNone, 4, kNoWindow},
      {"surplus waits", 6, kNoWindow, 1, Hold::kNone, 4, kNoWindow},
      {"too few again: the window is forgotten", 1, At(6), 9, Hold::kTooFew, 0, kNoWindow},
  };
  for (const Row& row : rows) {
    const EpochDecision decision =
        DecideEpoch(Names(row.attending), rules, row.window_end, At(row.now));
    EXPECT_EQ(decision.hold, row.hold) << row.name;
    EXPECT_EQ(decision.members, Names(row.members)) << row.name;
    EXPECT_EQ(decision.window_end, row.new_window_end) << row.name;
  }
}

TEST(DecideEpoch, NeedsNoWindowWhereMinIsMax) {
  const EpochRules rules = {.min_workers = 2, .max_workers = 2, .join_window = absl::Seconds(5)};
  EXPECT_EQ(DecideEpoch(Names(2), rules, std::nullopt, At(1)).hold, Hold::kNone);
}

WorkerState Worker(const std::string& name) {
  WorkerState worker = {.name = name, .transport = "shm"};
  worker.manifest.parameters = {{{"fc.weight", DType::kFloat32, {10, 8}}, true}};
  worker.manifest.buffers = {{"bn.running_mean", DType::kFloat32, {8}}};
  worker.manifest.optimizer = "SGD(lr=0.1)";
  return worker;
}

TEST(FindDisagreement, NamesTheFirstDifferenceWithBothViews) {
  const SyncPolicy policy;
  ModelComparison models(policy);
  const auto find = [&](const std::vector<const WorkerState*>& workers) {
    return FindDisagreement(workers, models);
  };
  const WorkerState a = Worker("w0"), b = Worker("w1");
  EXPECT_EQ(find({&a, &b}), std::nullopt);
  EXPECT_EQ(find({&a}), std::nullopt);

  WorkerState c = Worker("w2");
  c.manifest.parameters[0].tensor.shape = {20, 8};
  EXPECT_THAT(find({&a, &b, &c}).value_or(""),
              testing::AllOf(HasSubstr("fc.weight"), HasSubstr("w0"), HasSubstr("w2")));
  c = Worker("w2");
  c.manifest.optimizer = "SGD(lr=0.2)";
  EXPECT_THAT(find({&a, &b, &c}).value_or(""), HasSubstr("lr=0.2"));
  c = Worker("w2");
  c.transport = "gloo";
  EXPECT_EQ(find({&a, &b, &c}), "transport: 'shm' on w0, 'gloo' on w2");
}

TEST(ModelComparison, LooksAtTheBuffersThatThePolicySynchronises) {
  const auto with = [](TensorSpec buffer) {
    Manifest manifest = Worker("w0").manifest;
    manifest.buffers.push_back(std::move(buffer));
    return manifest;
  };
  const Manifest plain = Worker("w0").manifest;
  const Manifest queue = with({"queue", DType::kFloat32, {8}});
  const Manifest longer = with({"queue", DType::kFloat32, {16}});
  const Manifest lazy = with({"queue", DType::kUnspecified, {}});
  Manifest wide = queue;
  wide.parameters[0].tensor.shape = {20, 8};
  Manifest slow = queue;
  slow.optimizer = "SGD(lr=0.01)";

  const SyncPolicy all;
  const SyncPolicy ignoring = {.ignore_list = {"queue"}};
  const SyncPolicy not_allowing = {.allow_list = {"bn.*"}};
  const SyncPolicy rank_local = {.rules = {{.pattern = "queue", .operation = Operation::kNone}}};
  const SyncPolicy averaging = {.rules = {{.pattern = "queue", .operation = Operation::kMean}}};
  // An empty text: no difference.
  struct Row {
    const char* name;
    const SyncPolicy& policy;
    const Manifest& a;
    const Manifest& b;
    std::string difference;
  };
  const std::string shapes =
      "buffer 'queue': float32[8] on a, float32[16] on b (the sync policy selects it)";
  const Row rows[] = {
      {"the same", all, queue, queue, ""},
      {"selected", all, queue, longer, shapes},
      {"selected by a rule", averaging, queue, longer, shapes},
      {"missing", all, queue, plain,
       "buffer 'queue': float32[8] on a, absent on b (the sync policy selects it)"},
      {"without values", all, queue, lazy,
       "buffer 'queue': float32[8] on a, no plain values on b (the sync policy selects it)"},
      {"without values on both", all, lazy, lazy, ""},
      {"ignored", ignoring, queue, longer, ""},
      {"ignored and missing", ignoring, plain, queue, ""},
      {"ignored and without values", ignoring, lazy, queue, ""},
      {"not allowed", not_allowing, queue, longer, ""},
      {"rank-local", rank_local, queue, longer, ""},
      {"parameters always count", ignoring, queue, wide,
       "parameter 'fc.weight': float32[10, 8] on a, float32[20, 8] on b"},
      {"the optimizer always counts", ignoring, longer, slow,
       "optimizer: SGD(lr=0.1) on a, SGD(lr=0.01) on b"},
  };
  for (const Row& row : rows) {
    ModelComparison models(row.policy);
    EXPECT_EQ(models.FirstDifference("a", row.a, "b", row.b).value_or(""), row.difference)
        << row.name;
  }
}

TEST(ModelComparison, LooksOnlyAtBuffersBetweenThoseThatAreAlike) {
  Manifest a, b;
  for (int i = 0; i < 100'000; ++i) {
    a.buffers.push_back({absl::StrCat("layer", i, ".running_mean"), DType::kFloat32, {8}});
  }
  b = a;
  b.buffers.insert(b.buffers.begin() + 5000, {"queue", DType::kFloat32, {8}});
  SyncPolicy policy = {.ignore_list = {"queue"}};
  for (int i = 0; i < 1000; ++i) policy.rules.push_back({.pattern = absl::StrCat("**.x", i)});
  EXPECT_EQ(ModelComparison(policy).FirstDifference("a", a, "b", b), std::nullopt);
  // Too many of them end in a refusal, not in a long wait.
  b.buffers.front().shape = b.buffers.back().shape = {9};
  EXPECT_THAT(ModelComparison(policy).FirstDifference("a", a, "b", b).value_or(""),
              HasSubstr("too many buffers of a and b differ"));
}

TEST(ModelComparison, EqualsAComparisonOfAllThatIsSynchronised) {
  const SyncPolicy policy = {.ignore_list = {"x*"}};
  Prng prng(1);
  int equal = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto draw = [&] {
      std::vector<TensorSpec> buffers;
      for (const char* name : {"a", "x1", "b", "x2", "c"}) {
        if (prng.Below(4) == 0) continue;
        buffers.push_back({name, DType::kFloat32, {prng.Between(1, prng.Below(3) ? 1 : 2)}});
      }
      if (buffers.size() > 1 && prng.Below(4) == 0) std::swap(buffers.front(), buffers.back());
      return buffers;
    };
    const Manifest a = {.buffers = draw()}, b = {.buffers = draw()};
    const auto kept = [](std::vector<TensorSpec> buffers) {
      std::erase_if(buffers, [](const TensorSpec& buffer) { return buffer.name[0] == 'x'; });
      return buffers;
    };
    const bool is_equal = kept(a.buffers) == kept(b.buffers);
    EXPECT_EQ(!ModelComparison(policy).FirstDifference("a", a, "b", b).has_value(), is_equal);
    equal += is_equal;
  }
  EXPECT_GT(equal, 100);
}

// A job whose epoch 3 runs on w0 and w1; w2 attends.
JobState RunningJob() {
  JobState job;
  job.spec.name = "j";
  job.spec.min_workers = 2;
  job.policies = {{.revision = Revision(1), .etag = "e1"}};
  job.manifest = Worker("w0").manifest;
  job.last_epoch = Epoch(3);
  job.stage = JobStage::kRunning;
  job.epoch = EpochState{.id = Epoch(3),
                         .stage = EpochStage::kRunning,
                         .members = {{"w0", Incarnation(5)}, {"w1", Incarnation(5)}}};
  for (const char* name : {"w0", "w1", "w2"}) {
    job.workers[name] = Worker(name);
    job.workers[name].incarnation = Incarnation(5);
    job.workers[name].stage = WorkerStage::kTraining;
  }
  job.workers["w2"].stage = WorkerStage::kAttending;
  return job;
}

Hello HelloOf(const std::string& worker, std::int64_t incarnation, std::int64_t epoch) {
  return {.job = "j",
          .worker = worker,
          .incarnation = Incarnation(incarnation),
          .manifest = Worker(worker).manifest,
          .transport = "shm",
          .epoch = Epoch(epoch)};
}

TEST(DecideHello, TakesTheRowOfTheTable) {
  struct Row {
    const char* name;
    Hello hello;
    Greeting greeting;
    absl::StatusCode code = absl::StatusCode::kOk;
  };
  const Row rows[] = {
      {"unknown", HelloOf("w3", 1, 0), Greeting::kJoin},
      {"unknown, of an epoch", HelloOf("w3", 1, 3), Greeting::kJoin},
      {"unknown, of an epoch to come", HelloOf("w3", 1, 4), Greeting::kRefuse,
       absl::StatusCode::kFailedPrecondition},
      {"again", HelloOf("w2", 5, 0), Greeting::kJoin},
      {"newer", HelloOf("w2", 6, 0), Greeting::kReplace},
      {"newer than a member", HelloOf("w1", 6, 0), Greeting::kReplace},
      {"newer, of an epoch", HelloOf("w1", 6, 3), Greeting::kReplace},
      {"older", HelloOf("w1", 4, 0), Greeting::kRefuse, absl::StatusCode::kAborted},
      {"member", HelloOf("w1", 5, 3), Greeting::kResume},
      {"older, of the epoch", HelloOf("w1", 4, 3), Greeting::kRefuse, absl::StatusCode::kAborted},
      {"member of an older epoch", HelloOf("w1", 5, 2), Greeting::kRejoin},
      {"no member, of the epoch", HelloOf("w2", 5, 3), Greeting::kJoin},
      {"member that lost its epoch", HelloOf("w1", 5, 0), Greeting::kRejoin},
      {"nameless", HelloOf("", 5, 0), Greeting::kRefuse, absl::StatusCode::kInvalidArgument},
      {"no incarnation", HelloOf("w3", 0, 0), Greeting::kRefuse,
       absl::StatusCode::kInvalidArgument},
  };
  JobState job = RunningJob();
  for (const Row& row : rows) {
    const HelloDecision decision = DecideHello(job, row.hello);
    EXPECT_EQ(decision.greeting, row.greeting) << row.name << ": " << decision.why;
    EXPECT_EQ(decision.why.code(), row.code) << row.name << ": " << decision.why;
  }

  job.epoch->stage = EpochStage::kProposed;
  job.stage = JobStage::kForming;
  EXPECT_EQ(DecideHello(job, HelloOf("w1", 5, 0)).greeting, Greeting::kPropose);
  EXPECT_EQ(DecideHello(job, HelloOf("w1", 5, 2)).greeting, Greeting::kPropose);
  EXPECT_EQ(DecideHello(job, HelloOf("w1", 5, 3)).greeting, Greeting::kResume);
}

TEST(DecideHello, HoldsThePlaceOfAMemberThatFinished) {
  JobState job = RunningJob();
  job.epoch->left = {"w1"};
  job.workers["w1"].stage = WorkerStage::kLeft;
  EXPECT_EQ(DecideHello(job, HelloOf("w1", 5, 3)).greeting, Greeting::kAlreadyLeft);
  EXPECT_THAT(DecideHello(job, HelloOf("w1", 6, 0)).why,
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST(DecideHello, RefusesAModelThatCannotBeSharded) {
  Hello hello = HelloOf("w3", 1, 0);
  hello.manifest.parameters[0].tensor.dtype = DType::kFloat64;
  JobState job = RunningJob();
  job.manifest.reset();
  EXPECT_THAT(DecideHello(job, hello).why,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fc.weight")));
}

TEST(DecideHello, ComparesWhatTheNewestPolicySynchronises) {
  JobState job = RunningJob();
  Hello hello = HelloOf("w3", 1, 0);
  hello.manifest.buffers.push_back({"queue", DType::kFloat32, {8}});
  EXPECT_THAT(DecideHello(job, hello).why,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("buffer 'queue': float32[8] on w3, absent on the job")));
  job.policies.push_back(job.policies[0]);
  job.policies[1].policy.ignore_list = {"queue"};
  EXPECT_EQ(DecideHello(job, hello).greeting, Greeting::kJoin);
}

TEST(DecideRevision, TakesTheRowOfTheTable) {
  JobState job = RunningJob();
  job.manifest->buffers.push_back({"bn.num_batches_tracked", DType::kInt64, {}});
  for (auto& [name, worker] : job.workers) worker.manifest = *job.manifest;
  job.workers["w0"].manifest.buffers.push_back({"queue", DType::kFloat32, {8}});
  job.workers["w1"].manifest.buffers.push_back({"queue", DType::kFloat32, {16}});
  job.manifest->buffers.push_back({"queue", DType::kFloat32, {8}});
  job.policies[0].policy.ignore_list = {"queue"};
  struct Row {
    const char* name;
    UpdateSyncPolicy update;
    std::int64_t revision;  // 0: refused
    absl::StatusCode code = absl::StatusCode::kOk;
    const char* text = "";
  };
  const SyncPolicy same = {.ignore_list = {"queue"}};
  const SyncPolicy other = {.ignore_list = {"queue", "bn.*"}};
  const SyncPolicy mean = {.ignore_list = {"queue"}, .operation = Operation::kMean};
  const SyncPolicy unmatched = {.ignore_list = {"queue", "none"}};
  const SyncPolicy all;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kAborted = absl::StatusCode::kAborted;
  const Row rows[] = {
      {"another", {.policy = other}, 2},
      {"another, with the etag", {.policy = other, .etag = "e1"}, 2},
      {"another, stale", {.policy = other, .etag = "e0"}, 0, kAborted, "newest revision is 1"},
      {"the same", {.policy = same}, 1},
      {"the same, with the etag", {.policy = same, .etag = "e1"}, 1},
      {"the same, stale", {.policy = same, .etag = "e0"}, 0, kAborted, "newest revision is 1"},
      {"unmatched", {.policy = unmatched}, 0, kInvalid, "'none' matches no buffer"},
      {"unmatched and allowed", {.policy = unmatched, .allow_unmatched = true}, 2},
      {"mean of integers", {.policy = mean}, 0, kInvalid, "'bn.num_batches_tracked' is int64"},
      {"mean of integers, unmatched allowed", {.policy = mean, .allow_unmatched = true}, 0,
       kInvalid, "'bn.num_batches_tracked' is int64"},
      {"members differ", {.policy = all}, 0, kInvalid,
       "members of epoch 3 differ in what would be synchronised: buffer 'queue': float32[8] on "
       "w0, float32[16] on w1"},
  };
  for (const Row& row : rows) {
    const auto decided = DecideRevision(job, row.update, absl::UnixEpoch());
    EXPECT_EQ(decided.status().code(), row.code) << row.name << ": " << decided.status();
    EXPECT_THAT(std::string(decided.status().message()), HasSubstr(row.text)) << row.name;
    if (decided.ok()) {
      EXPECT_EQ(decided->revision.value(), row.revision) << row.name;
    }
  }

  // Members that agree must agree with the job too, or none of them could come back.
  job.workers["w0"].manifest = job.workers["w1"].manifest;
  EXPECT_THAT(DecideRevision(job, {.policy = all}, absl::UnixEpoch()),
              StatusIs(kInvalid, HasSubstr("float32[8] on the job, float32[16] on w0")));
  // Who left, and who is no member, is not asked.
  job.workers["w0"].manifest = *job.manifest;
  job.epoch->left = {"w1"};
  EXPECT_THAT(DecideRevision(job, {.policy = all}, absl::UnixEpoch()), IsOk());
  job.log.resize(static_cast<std::size_t>(kMaxRevisionsPerJob));
  EXPECT_THAT(DecideRevision(job, {.policy = other}, absl::UnixEpoch()),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(DecideRevision(job, {.policy = same}, absl::UnixEpoch()), IsOk());
}

TEST(PolicyEtag, DiffersWheneverJobRevisionOrPolicyDo) {
  SyncPolicy policy;
  const absl::Time created = absl::UnixEpoch();
  std::vector<std::string> etags = {
      PolicyEtag("j", created, Revision(1), policy),
      PolicyEtag("k", created, Revision(1), policy),
      // The job was deleted and made again.
      PolicyEtag("j", created + absl::Nanoseconds(1), Revision(1), policy),
      PolicyEtag("j", created, Revision(2), policy)};
  const auto add = [&](auto change) {
    SyncPolicy changed;
    change(changed);
    etags.push_back(PolicyEtag("j", created, Revision(1), changed));
  };
  add([](SyncPolicy& p) { p.broadcast_buffers = false; });
  add([](SyncPolicy& p) { p.allow_list = {"a"}; });
  add([](SyncPolicy& p) { p.ignore_list = {"a"}; });
  add([](SyncPolicy& p) { p.root = RootRank{0}; });
  add([](SyncPolicy& p) { p.root = RootRank{1}; });
  add([](SyncPolicy& p) { p.root = RootWorker{"w1"}; });
  add([](SyncPolicy& p) { p.schedule.at_start = false; });
  add([](SyncPolicy& p) { p.schedule.every_forwards = 2; });
  add([](SyncPolicy& p) { p.schedule.every_steps = 1; });
  add([](SyncPolicy& p) { p.schedule.before_evaluation = true; });
  add([](SyncPolicy& p) { p.broadcast_parameters_at_start = false; });
  add([](SyncPolicy& p) { p.operation = Operation::kMax; });
  add([](SyncPolicy& p) { p.skip_unchanged = true; });
  add([](SyncPolicy& p) { p.rules = {{.pattern = "a"}}; });
  add([](SyncPolicy& p) { p.rules = {{.pattern = "a", .operation = Operation::kMax}}; });
  const std::size_t count = etags.size();
  std::sort(etags.begin(), etags.end());
  etags.erase(std::unique(etags.begin(), etags.end()), etags.end());
  EXPECT_EQ(etags.size(), count);
}

TEST(CheckSyncOnce, NeedsARunningEpochARootOfItAndSomethingToSynchronise) {
  JobState job = RunningJob();
  LOCKSTEP_EXPECT_OK(CheckSyncOnce(job, {}));
  LOCKSTEP_EXPECT_OK(CheckSyncOnce(job, {.root = LowestRank{}}));
  LOCKSTEP_EXPECT_OK(CheckSyncOnce(job, {.root = RootRank{1}}));
  LOCKSTEP_EXPECT_OK(CheckSyncOnce(job, {.root = RootWorker{"w1"}}));
  const auto invalid = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(CheckSyncOnce(job, {.root = RootRank{2}}), invalid("ranks 0 to 1"));
  EXPECT_THAT(CheckSyncOnce(job, {.root = RootRank{-1}}), invalid("ranks 0 to 1"));
  EXPECT_THAT(CheckSyncOnce(job, {.root = RootWorker{"w2"}}), invalid("w0, w1"));
  EXPECT_THAT(CheckSyncOnce(job, {.buffers = false}), invalid("nothing"));
  job.stage = JobStage::kWaiting;
  job.epoch.reset();
  EXPECT_THAT(CheckSyncOnce(job, {}), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(ValidateJobSpec, NamesTheFieldThatIsWrong) {
  const auto error_of = [](auto change) {
    JobSpec spec;
    spec.name = "mnist-2";
    spec.min_workers = 2;
    change(spec);
    return Validate(spec);
  };
  const auto names = [](const char* field) {
    return StatusIs(absl::StatusCode::kInvalidArgument, testing::StartsWith(field));
  };
  LOCKSTEP_EXPECT_OK(error_of([](JobSpec&) {}));
  LOCKSTEP_EXPECT_OK(error_of([](JobSpec& s) { s.workers = {"w0", "host-1.rack_2"}; }));
  EXPECT_THAT(error_of([](JobSpec& s) { s.name = ""; }), names("name"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.name = "Mnist"; }), names("name"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.name = std::string(64, 'a'); }), names("name"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.min_workers = 0; }), names("min_workers"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.max_workers = 1; }), names("max_workers"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.max_workers = 20'000; }), names("max_workers"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.workers = {"w0"}; }), names("workers"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.workers = {"w0", "w0"}; }), names("workers"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.workers = {"w0", "w 1"}; }), names("workers"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.join_window = absl::Seconds(-1); }),
              names("join_window"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.lease = absl::ZeroDuration(); }), names("lease"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.ready_timeout = absl::InfiniteDuration(); }),
              names("ready_timeout"));
  EXPECT_THAT(error_of([](JobSpec& s) { s.policy.schedule.every_steps = -1; }),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lockstep
