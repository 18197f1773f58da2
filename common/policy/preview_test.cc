#include "common/policy/preview.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Manifest Model() {
  Manifest manifest;
  manifest.buffers = {{"bn.running_mean", DType::kFloat32, {64}},
                      {"bn.num_batches_tracked", DType::kInt64, {}},
                      {"moco.queue", DType::kFloat32, {8, 16}},
                      {"ema", DType::kFloat64, {2}},
                      {"empty", DType::kFloat32, {0}}};
  return manifest;
}

PolicyPreview PreviewOf(const SyncPolicy& policy, const std::vector<std::string>& members = {}) {
  absl::StatusOr<PolicyPreview> preview = Preview(policy, Model(), members);
  EXPECT_THAT(preview, IsOk());
  return preview.ok() ? *std::move(preview) : PolicyPreview();
}

TEST(Preview, SaysOfEachBufferWhatDecidedAndWhatIsDone) {
  const Schedule every_10_steps = {.every_forwards = 0, .every_steps = 10};
  const SyncPolicy policy = {.allow_list = {"bn.*", "moco.*", "ema"},
                             .ignore_list = {"none", "ema"},
                             .rules = {{.pattern = "moco.*", .operation = Operation::kNone},
                                       {.pattern = "**.running_*",
                                        .operation = Operation::kMean,
                                        .root = RootWorker{"w1"},
                                        .schedule = every_10_steps}}};
  const PolicyPreview preview = PreviewOf(policy, {"w0", "w1"});
  using enum BufferPreview::Selection;
  EXPECT_THAT(preview.buffers,
              ElementsAre(BufferPreview{.name = "bn.running_mean",
                                        .type = "float32[64]",
                                        .selection = kSynced,
                                        .pattern = "**.running_*",
                                        .rule = 1,
                                        .operation = Operation::kMean,
                                        .root = RootWorker{"w1"},
                                        .root_worker = "w1",
                                        .schedule = every_10_steps,
                                        .bytes = 256},
                          BufferPreview{.name = "bn.num_batches_tracked",
                                        .type = "int64[]",
                                        .selection = kSynced,
                                        .operation = Operation::kBroadcast,
                                        .root_worker = "w0",
                                        .bytes = 8},
                          BufferPreview{.name = "moco.queue",
                                        .type = "float32[8, 16]",
                                        .selection = kRankLocal,
                                        .pattern = "moco.*",
                                        .rule = 0},
                          BufferPreview{.name = "ema",
                                        .type = "float64[2]",
                                        .selection = kIgnored,
                                        .pattern = "ema"},
                          BufferPreview{.name = "empty",
                                        .type = "float32[0]",
                                        .selection = kNotAllowed}));
  EXPECT_EQ(preview.total_buffers, 5);
  EXPECT_EQ(preview.synced_buffers, 2);
}

TEST(Preview, ShowsWhoStandsInForARoot) {
  const SyncPolicy policy = {.root = RootWorker{"w9"}};
  const PolicyPreview stands_in = PreviewOf(policy, {"w0", "w1"});
  EXPECT_EQ(stands_in.buffers[0].root, Root(RootWorker{"w9"}));
  EXPECT_EQ(stands_in.buffers[0].root_worker, "w0");
  EXPECT_THAT(stands_in.warnings, testing::Contains(HasSubstr("w0 (rank 0) stands in")));
  EXPECT_EQ(PreviewOf(policy).buffers[0].root_worker, "");
}

TEST(Preview, IsOfNoBuffersToo) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const PolicyPreview preview, Preview({}, Manifest{}, {}));
  EXPECT_THAT(preview.buffers, IsEmpty());
  EXPECT_EQ(preview.total_buffers, 0);
  EXPECT_EQ(preview.at_start, SyncCost());
}

TEST(Preview, RefusesAMalformedPolicy) {
  EXPECT_THAT(Preview({.ignore_list = {"re:("}}, Model(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ignore_list[0]")));
}

// The model has 5 buffers of 256 + 8 + 512 + 16 + 0 bytes.
TEST(Preview, CountsWhatEachMomentCosts) {
  constexpr SyncCost kAll = {.buffers = 5, .transfers = 1, .bytes = 792};
  constexpr SyncCost kNothing = {};
  const Schedule start_only = {.every_forwards = 0};
  const Schedule all_times = {.every_forwards = 3,
                              .every_steps = 5,
                              .before_evaluation = true,
                              .before_checkpoint = true};
  const SyncRule averaged = {.pattern = "bn.running_mean", .operation = Operation::kMean};
  const SyncRule weighted = {.pattern = "ema", .operation = Operation::kMeanBySamples};
  struct Row {
    const char* name;
    SyncPolicy policy;
    SyncCost at_start, before_forward, after_step, before_evaluation, before_checkpoint,
        on_command;
    std::vector<std::string> members = {};
  };
  const auto with = [](std::int64_t transfers) {
    return SyncCost{.buffers = 5, .transfers = transfers, .bytes = 792};
  };
  const Row rows[] = {
      {"by default", {}, kAll, kAll, kNothing, kNothing, kNothing, kAll},
      {"on command only", {.schedule = {.at_start = false, .every_forwards = 0}}, kNothing,
       kNothing, kNothing, kNothing, kNothing, kAll},
      {"at all times", {.schedule = all_times}, kAll, kAll, kAll, kAll, kAll, kAll},
      {"switched off", {.broadcast_buffers = false, .schedule = all_times}, kAll, kNothing,
       kNothing, kNothing, kNothing, kAll},
      {"three operations: at start all is broadcast", {.rules = {averaged, weighted}}, kAll,
       with(3), kNothing, kNothing, kNothing, with(3)},
      {"two rules of one operation",
       {.rules = {averaged, {.pattern = "ema", .operation = Operation::kMean}}}, kAll, with(2),
       kNothing, kNothing, kNothing, with(2)},
      {"the root of a reduction counts at start only",
       {.rules = {averaged,
                  {.pattern = "ema", .operation = Operation::kMean, .root = RootRank{1}}}},
       with(2), with(2), kNothing, kNothing, kNothing, with(2)},
      {"means by samples since different moments",
       {.rules = {{.pattern = "ema",
                   .schedule = Schedule{.every_forwards = 1, .every_steps = 10}},
                  // The start is before there are samples.
                  {.pattern = "moco.*", .schedule = Schedule{.at_start = false}}},
        .operation = Operation::kMeanBySamples},
       {4, 1, 280}, with(2), {1, 1, 16}, kNothing, kNothing, with(2)},
      {"a worker alone", {.schedule = all_times}, kNothing, kNothing, kNothing, kNothing,
       kNothing, kNothing, {"w0"}},
      {"two roots", {.rules = {{.pattern = "ema", .root = RootRank{1}}}}, with(2), with(2),
       kNothing, kNothing, kNothing, with(2)},
      {"two names of one root", {.rules = {{.pattern = "ema", .root = RootRank{0}}}}, kAll, kAll,
       kNothing, kNothing, kNothing, kAll},
      {"of one member",
       {.rules = {{.pattern = "ema", .root = RootWorker{"w1"}},
                  {.pattern = "moco.*", .root = RootRank{1}}}},
       with(2), with(2), kNothing, kNothing, kNothing, with(2), {"w0", "w1"}},
      {"a root that has left is the lowest rank",
       {.rules = {{.pattern = "ema", .root = RootWorker{"w9"}}}}, kAll, kAll, kNothing, kNothing,
       kNothing, kAll, {"w0", "w1"}},
      {"what is empty needs no transfer",
       {.rules = {{.pattern = "empty", .operation = Operation::kMax}}}, kAll, kAll, kNothing,
       kNothing, kNothing, kAll},
      {"a schedule of its own",
       {.rules = {{.pattern = "ema", .schedule = Schedule{.at_start = false,
                                                          .every_forwards = 0,
                                                          .every_steps = 100}}}},
       {4, 1, 776}, {4, 1, 776}, {1, 1, 16}, kNothing, kNothing, kAll},
      {"rank-local", {.rules = {{.pattern = "moco.*", .operation = Operation::kNone}}},
       {4, 1, 280}, {4, 1, 280}, kNothing, kNothing, kNothing, {4, 1, 280}},
      {"nothing but an empty one", {.allow_list = {"empty"}}, {1, 0, 0}, {1, 0, 0}, kNothing,
       kNothing, kNothing, {1, 0, 0}},
      {"at start only", {.schedule = start_only}, kAll, kNothing, kNothing, kNothing, kNothing,
       kAll},
  };
  for (const Row& row : rows) {
    const PolicyPreview preview = PreviewOf(row.policy, row.members);
    const auto expect = [&](const char* moment, const SyncCost& is, const SyncCost& should) {
      EXPECT_EQ(std::tie(is.buffers, is.transfers, is.bytes),
                std::tie(should.buffers, should.transfers, should.bytes))
          << row.name << ", " << moment << ": " << is.buffers << " buffers, " << is.transfers
          << " transfers, " << is.bytes << " bytes";
    };
    expect("at start", preview.at_start, row.at_start);
    expect("before forward", preview.before_forward, row.before_forward);
    expect("after step", preview.after_step, row.after_step);
    expect("before evaluation", preview.before_evaluation, row.before_evaluation);
    expect("before checkpoint", preview.before_checkpoint, row.before_checkpoint);
    expect("on command", preview.on_command, row.on_command);
  }
}

TEST(Preview, ShowsWhatTheMasterSwitchLeavesOfASchedule) {
  const Schedule often = {.every_forwards = 3, .every_steps = 5, .before_evaluation = true,
                          .before_checkpoint = true};
  EXPECT_EQ(PreviewOf({.schedule = often}).buffers[0].schedule, often);
  EXPECT_EQ(PreviewOf({.broadcast_buffers = false, .schedule = often}).buffers[0].schedule,
            (Schedule{.at_start = true, .every_forwards = 0}));
}

TEST(Preview, AcceptsAPatternOfABufferThatOnlyAnotherWorkerHas) {
  const SyncPolicy policy = {.ignore_list = {"only.there"}};
  const auto is_refusal = HasSubstr("an update would refuse this policy");
  EXPECT_THAT(PreviewOf(policy).warnings, testing::Contains(is_refusal));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const PolicyPreview preview,
                                Preview(policy, Model(), {}, {"only.there"}));
  EXPECT_THAT(preview.warnings, testing::Not(testing::Contains(is_refusal)));
  EXPECT_EQ(preview.total_buffers, 5);
}

TEST(PreviewBuffers, GivesThoseOfAPage) {
  const SyncPolicy policy = {.rules = {{.pattern = "ema", .operation = Operation::kMax}}};
  const std::vector<BufferPreview> all = PreviewOf(policy, {"w0", "w1"}).buffers;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto middle,
                                PreviewBuffers(policy, Model(), {"w0", "w1"}, 2, 2));
  EXPECT_THAT(middle, ElementsAre(all[2], all[3]));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto rest,
                                PreviewBuffers(policy, Model(), {"w0", "w1"}, 4, INT64_MAX));
  EXPECT_THAT(rest, ElementsAre(all[4]));
}

TEST(Preview, CostsNeverExceedWhatIsSynced) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Prng prng(seed);
    SyncPolicy policy = {.broadcast_buffers = prng.Below(4) > 0};
    const char* patterns[] = {"bn.*", "**", "ema", "moco.*", "**.running_mean", "none"};
    const auto pattern = [&] { return std::string(patterns[prng.Below(6)]); };
    if (prng.Below(3) == 0) policy.allow_list = {pattern(), pattern()};
    if (prng.Below(3) == 0) policy.ignore_list = {pattern()};
    for (std::uint64_t i = prng.Below(4); i > 0; --i) {
      policy.rules.push_back({.pattern = pattern(),
                              .operation = static_cast<Operation>(prng.Between(1, 7)),
                              .root = RootRank{prng.Between(0, 3)}});
    }
    const PolicyPreview preview = PreviewOf(policy, {"w0", "w1"});
    std::int64_t synced = 0, bytes = 0;
    std::set<std::pair<Operation, std::string>> groups;
    for (const BufferPreview& row : preview.buffers) {
      if (row.selection != BufferPreview::Selection::kSynced) continue;
      ++synced;
      bytes += row.bytes;
      const bool has_root = row.operation == Operation::kBroadcast;
      if (row.bytes > 0) groups.emplace(row.operation, has_root ? row.root_worker : "");
    }
    EXPECT_EQ(preview.synced_buffers, synced) << seed;
    const SyncCost all = {synced, static_cast<std::int64_t>(groups.size()), bytes};
    EXPECT_EQ(preview.on_command, all) << seed;
    EXPECT_EQ(preview.before_forward, policy.broadcast_buffers ? all : SyncCost()) << seed;
    EXPECT_EQ(preview.at_start.bytes, bytes) << seed;
    EXPECT_LE(preview.at_start.transfers, 2) << seed;
  }
}

}  // namespace
}  // namespace lockstep
