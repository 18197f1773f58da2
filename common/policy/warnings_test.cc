#include "common/policy/warnings.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TensorSpec Floats(std::string name, std::int64_t elements = 8) {
  return {std::move(name), DType::kFloat32, {elements}};
}
TensorSpec Count(std::string name) { return {std::move(name), DType::kInt64, {}}; }

std::vector<TensorSpec> BatchNorm(const std::string& layer) {
  return {Floats(layer + ".running_mean"), Floats(layer + ".running_var"),
          Count(layer + ".num_batches_tracked")};
}

std::vector<std::string> Warnings(const SyncPolicy& policy, std::vector<TensorSpec> buffers,
                                  const std::vector<std::string>& members = {}) {
  Manifest manifest;
  manifest.buffers = std::move(buffers);
  const absl::StatusOr<BufferRules> rules = BufferRules::Compile(policy);
  EXPECT_THAT(rules, IsOk());
  return FindWarnings(policy, *rules, manifest, members);
}

TEST(FindWarnings, TakesTheRowOfTheTable) {
  const Schedule on_command = {.at_start = false, .every_forwards = 0};
  const Schedule start_only = {.every_forwards = 0};
  const Schedule every_100_steps = {.every_forwards = 0, .every_steps = 100};
  const Schedule every_10_forwards = {.every_forwards = 10};
  const std::vector<TensorSpec> bn = BatchNorm("bn1");
  const std::vector<TensorSpec> queue = {Floats("moco.queue"), Count("moco.queue_ptr")};
  const std::vector<TensorSpec> table = {Floats("attn.inv_freq", 200'000),
                                         Floats("attn.mask", 62'144)};
  const auto rule = [](std::string pattern, Operation operation) {
    return SyncRule{.pattern = std::move(pattern), .operation = operation};
  };
  struct Row {
    const char* name;
    SyncPolicy policy;
    std::vector<TensorSpec> buffers;
    const char* text;  // of the only warning; empty: there is none
    std::vector<std::string> members = {};
  };
  const Row rows[] = {
      {"no buffers", {}, {}, ""},
      {"all of a BatchNorm", {}, bn, ""},
      {"none of a BatchNorm", {.ignore_list = {"bn1.*"}}, bn, ""},
      {"a part is ignored", {.ignore_list = {"**.num_batches_tracked"}}, bn,
       "of BatchNorm 'bn1' only a part is synced: running_mean, running_var, but not "
       "num_batches_tracked"},
      {"a part is not allowed", {.allow_list = {"**.running_mean"}}, bn,
       "running_mean, but not running_var, num_batches_tracked"},
      {"a part is rank-local", {.rules = {rule("**.num_batches_tracked", Operation::kNone)}}, bn,
       "but not num_batches_tracked"},
      {"a BatchNorm without counter", {}, {Floats("running_mean"), Floats("running_var")}, ""},
      {"a part of the model itself", {.ignore_list = {"running_var"}},
       {Floats("running_mean"), Floats("running_var")}, "'(the model itself)'"},
      {"its operations may differ",
       {.rules = {rule("**.running_*", Operation::kMean),
                  rule("**.num_batches_tracked", Operation::kMax)}},
       bn, ""},
      {"its schedules may not",
       {.rules = {{.pattern = "**.running_var", .schedule = every_100_steps}}}, bn,
       "the parts of BatchNorm 'bn1' have different schedules: running_mean at start and before "
       "every forward, running_var at start and every 100 steps, num_batches_tracked"},
      {"a schedule for all of it",
       {.rules = {{.pattern = "bn1.*", .schedule = every_100_steps}}}, bn, ""},
      {"its roots may not", {.rules = {{.pattern = "**.running_var", .root = RootRank{1}}}}, bn,
       "different roots: running_mean from the lowest rank, running_var from rank 1, "
       "num_batches_tracked from the lowest rank"},
      {"unless they are the same", {.rules = {{.pattern = "**.running_var", .root = RootRank{0}}}},
       bn, ""},
      {"by name, too",
       {.rules = {{.pattern = "**.running_var", .root = RootWorker{"w0"}}}}, bn, "",
       {"w0", "w1"}},
      {"a reduction has no root",
       {.rules = {{.pattern = "**.running_var",
                   .operation = Operation::kMean,
                   .root = RootRank{1},
                   .schedule = on_command}},
        .schedule = on_command},
       bn, ""},
      {"but at start it has",
       {.rules = {{.pattern = "**.running_var",
                   .operation = Operation::kMean,
                   .root = RootRank{1}}}},
       bn, "different roots"},

      {"a queue is broadcast", {}, queue,
       "buffers 'moco.queue', 'moco.queue_ptr' look like what each rank keeps for itself, but are "
       "overwritten by broadcast"},
      {"in capitals", {}, {Floats("ReplayBuffer.data")}, "keeps for itself"},
      {"max overwrites too", {.operation = Operation::kMax}, {Floats("rng_state")}, "by max"},
      {"letters inside of a word", {}, {Floats("descriptr"), Floats("prehistory")}, ""},
      {"a queue is ignored", {.ignore_list = {"moco.*"}}, queue, ""},
      {"a queue is rank-local", {.rules = {rule("moco.*", Operation::kNone)}}, queue, ""},
      {"a BatchNorm in a queue is none", {}, BatchNorm("queue_encoder"), ""},

      {"the mean of a codebook", {.operation = Operation::kMean}, {Floats("vq.codebook")},
       "buffer 'vq.codebook' look like unit vectors or assignments"},
      {"weighted", {.operation = Operation::kMeanBySamples}, {Floats("prototypes")},
       "'prototypes' look like unit vectors"},
      {"its broadcast", {}, {Floats("vq.codebook")}, ""},
      {"the mean of something else", {.operation = Operation::kMean}, {Floats("ema")}, ""},
      {"the mean of a BatchNorm after an embedding", {.operation = Operation::kMean},
       {Floats("embedding.bn.running_mean"), Floats("embedding.bn.running_var")}, ""},

      {"a repeated sum", {.operation = Operation::kSum}, {Floats("hits")},
       "buffer 'hits' are summed again and again"},
      {"a sum before each checkpoint",
       {.operation = Operation::kSum,
        .schedule = {.every_forwards = 0, .before_checkpoint = true}},
       {Floats("hits")}, "summed again"},
      {"a sum on command", {.operation = Operation::kSum, .schedule = on_command},
       {Floats("hits")}, ""},
      {"a sum that is a broadcast at start",
       {.operation = Operation::kSum, .schedule = start_only}, {Floats("hits")}, ""},
      {"a sum that is switched off",
       {.broadcast_buffers = false, .operation = Operation::kSum}, {Floats("hits")}, ""},
      {"a repeated max", {.operation = Operation::kMax}, {Floats("hits")}, ""},

      {"no plain values", {}, {{"lazy", DType::kUnspecified, {}}},
       "buffer 'lazy' held no plain values"},
      {"no plain values, ignored", {.ignore_list = {"lazy"}}, {{"lazy", DType::kUnspecified, {}}},
       ""},

      {"large constants", {}, table,
       "buffers 'attn.inv_freq', 'attn.mask' look constant, but are sent before every forward, "
       "1.0 MiB in all"},
      {"a byte less", {},
       {Floats("inv_freq", 262'143), {"mask", DType::kBool, {3}}}, ""},
      {"large constants, skipped", {.skip_unchanged = true}, table, ""},
      {"large constants, rarely", {.schedule = every_10_forwards}, table, ""},
      {"large constants, switched off", {.broadcast_buffers = false}, table, ""},
      {"large constants, ignored", {.ignore_list = {"attn.*"}}, table, ""},
      {"large, but no constants", {}, {Floats("ema", 1 << 20), Floats("tableau", 1 << 20)}, ""},
      {"masks of pruning", {}, {Floats("fc.weight_mask", 1 << 20)}, ""},
      {"a BatchNorm after a mask", {}, {Floats("mask.running_mean", 1 << 20)}, ""},
      {"embeddings of positions", {}, {Floats("encoder.pos_embed", 1 << 20)}, "look constant"},

      {"a rule after another for all",
       {.rules = {rule("**", Operation::kMax), rule("bn1.*", Operation::kMax)}}, bn,
       "rules[1] 'bn1.*' has no effect: what it matches, buffers 'bn1.running_mean', "
       "'bn1.running_var', 'bn1.num_batches_tracked', is decided before it ('bn1.running_mean' by "
       "rules[0] '**')"},
      {"a rule for what is ignored",
       {.ignore_list = {"moco.*"}, .rules = {rule("**.queue", Operation::kMax)}}, queue,
       "('moco.queue' by ignore_list[0] 'moco.*')"},
      {"a rule for what is not allowed",
       {.allow_list = {"ema"}, .rules = {rule("hits", Operation::kMax)}},
       {Floats("ema"), Floats("hits")}, "('hits' by the allow list)"},
      {"a rule for what others leave",
       {.rules = {rule("**.running_mean", Operation::kMax), rule("bn1.*", Operation::kMax)}}, bn,
       ""},
      {"a rank-local rule has an effect",
       {.rules = {rule("hits", Operation::kNone)}}, {Floats("hits")}, ""},

      {"a pattern that matches nothing", {.ignore_list = {"bn2.*"}}, bn,
       "an update would refuse this policy: ignore_list[0]: the pattern 'bn2.*' matches no buffer"},
      {"a rule that matches nothing", {.rules = {rule("bn2.*", Operation::kMax)}}, bn,
       "rules[0].pattern: the pattern 'bn2.*' matches no buffer"},
      {"the mean of integers", {.rules = {rule("steps", Operation::kMean)}}, {Count("steps")},
       "an update would refuse this policy: buffer 'steps' is int64, which has no mean"},

      {"a root that is no member", {.root = RootWorker{"w9"}}, bn,
       "worker w9, the root of buffers 'bn1.running_mean', 'bn1.running_var', "
       "'bn1.num_batches_tracked' and of the parameters, is no member of the current epoch; w0 "
       "(rank 0) stands in",
       {"w0", "w1"}},
      {"a rank too high", {.rules = {{.pattern = "bn1.*", .root = RootRank{2}}}}, bn,
       "rank 2, the root of buffers 'bn1.running_mean', 'bn1.running_var', "
       "'bn1.num_batches_tracked', is no member",
       {"w0", "w1"}},
      {"of the parameters only",
       {.operation = Operation::kMax, .root = RootRank{2}, .schedule = on_command}, bn,
       "rank 2, the root of the parameters, is no member", {"w0", "w1"}},
      {"a root that is a member", {.root = RootWorker{"w1"}}, bn, "", {"w0", "w1"}},
      {"a root of nothing",
       {.operation = Operation::kMax,
        .root = RootRank{2},
        .schedule = on_command,
        .broadcast_parameters_at_start = false},
       bn, "", {"w0", "w1"}},
      {"nobody knows yet", {.root = RootWorker{"w9"}}, bn, ""},

      {"off, with a schedule", {.broadcast_buffers = false, .schedule = every_100_steps}, bn,
       "broadcast_buffers is off, so that buffers 'bn1.running_mean', 'bn1.running_var', "
       "'bn1.num_batches_tracked' are synced at start and on command at most, although their "
       "schedule says at start and every 100 steps"},
      {"off, as it comes", {.broadcast_buffers = false}, bn, ""},
      {"off, at start only", {.broadcast_buffers = false, .schedule = start_only}, bn, ""},
      {"on, with a schedule", {.schedule = every_100_steps}, bn, ""},
  };
  for (const Row& row : rows) {
    const std::vector<std::string> warnings = Warnings(row.policy, row.buffers, row.members);
    const std::string all = absl::StrJoin(warnings, "\n");
    if (*row.text == '\0') {
      EXPECT_THAT(warnings, IsEmpty()) << row.name << ":\n" << all;
    } else {
      EXPECT_THAT(warnings, ElementsAre(HasSubstr(row.text))) << row.name << ":\n" << all;
    }
  }
}

TEST(FindWarnings, SaysTheSameOfManyLayersOnce) {
  std::vector<TensorSpec> buffers;
  for (int i = 0; i < 12; ++i) {
    for (TensorSpec& buffer : BatchNorm(absl::StrCat("layer", i))) {
      buffers.push_back(std::move(buffer));
    }
  }
  EXPECT_THAT(Warnings({.ignore_list = {"**.num_batches_tracked"}}, buffers),
              ElementsAre(HasSubstr("'layer2' and 7 more only a part is synced")));
}

TEST(FindWarnings, WarnsOfSeveralThingsTheGravestFirst) {
  const std::vector<std::string> warnings =
      Warnings({.ignore_list = {"none"}, .operation = Operation::kMean},
               {Floats("queue"), Count("steps")});
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("no mean"), HasSubstr("matches no buffer"),
                                    HasSubstr("keeps for itself"), HasSubstr("unit vectors")));
}

TEST(FindWarnings, CountsWhatIsTooMuch) {
  SyncPolicy policy;
  for (int i = 0; i < 31; ++i) policy.rules.push_back({.pattern = "hits"});
  std::vector<std::string> warnings = Warnings(policy, {Floats("hits")});
  ASSERT_THAT(warnings, SizeIs(kMaxWarnings + 1));
  EXPECT_EQ(warnings.back(), "there are 10 more warnings");
  policy.rules.resize(21);
  warnings = Warnings(policy, {Floats("hits")});
  ASSERT_THAT(warnings, SizeIs(kMaxWarnings));
  EXPECT_FALSE(absl::StrContains(warnings.back(), "more warnings"));
}

}  // namespace
}  // namespace lockstep
