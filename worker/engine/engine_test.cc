// The step: reduction, agreement, update, control entries, refusals.
#include "worker/engine/engine.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mono_time.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/engine/forwarding_transport.h"
#include "worker/engine/shared_parameters.h"
#include "worker/engine/threaded_world.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kSteps = 20;
constexpr int kBatch = 12;
constexpr int kWeights = 53;
constexpr int kBiases = 5;

void AddTensors(VectorModel& model) {
  Prng prng(7);
  std::vector<float> weights(kWeights);
  for (float& weight : weights) weight = static_cast<float>(prng.Unit() - 0.5);
  model.AddParameter("fc.weight", std::move(weights));
  model.AddParameter("fc.bias", std::vector<float>(kBiases, 0.25f));
  model.AddBuffer<float>("bn.running_mean", {1, 2, 3});
}

// The gradient of one sample: multiples of 1/64 of at most 1/2, so that sums of a
// batch are exact in whatever groups they are formed.
float SampleGradient(int step, int sample, int element) {
  Prng prng((step * 1000 + sample) * 1000 + element);
  return static_cast<float>(prng.Between(-32, 32)) / 64;
}

// What backward() does: adds the gradients of samples [begin, end).
void Backward(VectorModel& model, int step, int begin, int end, float factor = 1) {
  for (const auto& [name, base] : {std::pair("fc.weight", 0), std::pair("fc.bias", kWeights)}) {
    const std::span<float> gradient = model.gradient(name);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      for (int sample = begin; sample < end; ++sample) {
        gradient[i] += factor * SampleGradient(step, sample, base + static_cast<int>(i));
      }
    }
  }
}

std::vector<float> Parameters(VectorModel& model) {
  std::vector<float> all;
  for (const char* name : {"fc.weight", "fc.bias"}) {
    const std::span<const float> values = model.parameter(name);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Trains with samples[rank] of each batch on each rank; returns the parameters
// after each rank has checked that it has them too.
std::vector<float> Train(const OptimizerConfig& optimizer, const std::vector<int>& samples,
                         LossReduction loss = LossReduction::kSum,
                         const WrappingFactory::Wrap& wrap = [](auto base) { return base; }) {
  ThreadedWorld world(static_cast<int>(samples.size()));
  WrappingFactory transports(world.transports(), wrap);
  for (int rank = 0; rank < world.size(); ++rank) AddTensors(world.model(rank));
  world.Propose({});
  world.Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world.Join(rank, optimizer, &transports));
    const int begin = std::accumulate(samples.begin(), samples.begin() + rank, 0);
    const int end = begin + samples[rank];
    for (int step = 1; step <= kSteps; ++step) {
      LOCKSTEP_ASSERT_OK(world.engine(rank).BeforeForward());
      Backward(world.model(rank), step, begin, end,
               loss == LossReduction::kMean && end > begin ? 1.0f / samples[rank] : 1.0f);
      LOCKSTEP_ASSERT_OK(
          world.engine(rank).Step({.samples = samples[rank], .loss = loss}));
    }
    EXPECT_EQ(world.engine(rank).step(), kSteps);
  });
  for (int rank = 1; rank < world.size(); ++rank) {
    EXPECT_EQ(Parameters(world.model(rank)), Parameters(world.model(0))) << rank;
  }
  return Parameters(world.model(0));
}

std::vector<float> TrainAlone(const OptimizerConfig& optimizer) {
  VectorModel model;
  AddTensors(model);
  auto engine = Engine::Alone(optimizer, {}, &model);
  EXPECT_THAT(engine, IsOk());
  for (int step = 1; step <= kSteps; ++step) {
    LOCKSTEP_EXPECT_OK((*engine)->BeforeForward());
    Backward(model, step, 0, kBatch);
    LOCKSTEP_EXPECT_OK((*engine)->Step({.samples = kBatch, .loss = LossReduction::kSum}));
  }
  return Parameters(model);
}

const OptimizerConfig kSgd = Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01};

// Ranks of a small model, joined.
class JoinedWorld {
 public:
  explicit JoinedWorld(int size, const SyncPolicy& policy = {}) : world_(size) {
    for (int rank = 0; rank < size; ++rank) AddTensors(world_.model(rank));
    world_.Propose(policy);
    world_.Run([&](int rank) { LOCKSTEP_ASSERT_OK(world_.Join(rank, Sgd{.lr = 0.5})); });
  }
  ThreadedWorld* operator->() { return &world_; }

 private:
  ThreadedWorld world_;
};

TEST(Step, GivesTheSameBitsOnAnyNumberOfRanks) {
  for (const OptimizerConfig& optimizer : {kSgd, OptimizerConfig(AdamW{.lr = 0.01})}) {
    const std::vector<float> alone = TrainAlone(optimizer);
    EXPECT_EQ(Train(optimizer, {12}), alone);
    EXPECT_EQ(Train(optimizer, {6, 6}), alone);
    EXPECT_EQ(Train(optimizer, {4, 4, 4}), alone);
    EXPECT_EQ(Train(optimizer, {3, 3, 3, 3}), alone);
  }
}

TEST(Step, GivesTheSameBitsInAnArenaThatAllRanksShare) {
  const auto memory = std::make_shared<std::vector<float>>(1024);
  EXPECT_EQ(Train(kSgd, {4, 8, 0}, LossReduction::kSum,
                  [&](auto base) {
                    return std::make_unique<SharedParameters>(std::move(base), memory);
                  }),
            TrainAlone(kSgd));
}

TEST(Step, InASharedArenaStartsFromTheRootEvenIfThePolicyBroadcastsNothing) {
  const auto memory = std::make_shared<std::vector<float>>(1024);
  ThreadedWorld world(3);
  WrappingFactory transports(world.transports(), [&](auto base) {
    return std::make_unique<SharedParameters>(std::move(base), memory);
  });
  for (int rank = 0; rank < 3; ++rank) {
    world.model(rank).AddParameter("w", std::vector<float>(40, static_cast<float>(rank)));
    world.model(rank).AddFrozenParameter("frozen", {static_cast<float>(rank)});
  }
  SyncPolicy policy;
  policy.broadcast_parameters_at_start = false;
  policy.schedule.at_start = false;
  policy.root = RootRank{1};
  world.Propose(policy);
  world.Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world.Join(rank, Sgd{}, &transports));
    EXPECT_THAT(world.model(rank).parameter("w"), Each(1));
    EXPECT_THAT(world.model(rank).frozen("frozen"), Each(rank));  // not in the arena
    EXPECT_EQ(world.model(rank).initial(),
              rank == 1 ? InitialValues::kCopyIn : InitialValues::kDiscard);
  });
}

TEST(Step, IsExactForUnevenSamplesAndARankWithoutData) {
  const std::vector<float> alone = TrainAlone(kSgd);
  EXPECT_EQ(Train(kSgd, {5, 0, 4, 3}), alone);
  EXPECT_EQ(Train(kSgd, {0, 12}), alone);
  EXPECT_EQ(Train(kSgd, {1, 11}), alone);
}

TEST(Step, WeighsMeansBySamples) {
  const std::vector<float> alone = TrainAlone(kSgd);
  EXPECT_EQ(Train(kSgd, {8, 4}, LossReduction::kMean), alone);
  EXPECT_EQ(Train(kSgd, {8, 0, 4}, LossReduction::kMean), alone);
}

TEST(Step, TakesNothingFromARankWithoutSamplesNotEvenNaN) {
  JoinedWorld world(2);
  world->Run([&](int rank) {
    for (float& value : world->model(rank).gradient("fc.bias")) {
      value = rank == 0 ? 1.0f : std::nanf("");
    }
    LOCKSTEP_EXPECT_OK(
        world->engine(rank).Step({.samples = 1 - rank, .loss = LossReduction::kSum}));
    EXPECT_THAT(world->model(rank).parameter("fc.bias"), Each(0.25f - 0.5f));
    EXPECT_THAT(world->model(rank).gradient("fc.bias"), Each(0));
  });
}

TEST(Step, RefusesAGradientThatIsNotFiniteOnAllRanksAndTrainingGoesOn) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    JoinedWorld world(3);
    const std::vector<float> before = Parameters(world->model(0));
    std::vector<std::string> messages(3);
    world->Run([&](int rank) {
      Engine& engine = world->engine(rank);
      if (rank == 1) world->model(rank).gradient("fc.bias")[2] = bad;
      const absl::Status status = engine.Step({.samples = 1});
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr("not finite"), HasSubstr("refused on all"))));
      messages[rank] = std::string(status.message());
      EXPECT_EQ(engine.step(), 0);
      EXPECT_EQ(Parameters(world->model(rank)), before);
      EXPECT_THAT(world->model(rank).gradient("fc.bias"), Each(0));

      world->model(rank).gradient("fc.bias")[2] = 1;
      LOCKSTEP_EXPECT_OK(engine.Step({.samples = 1}));
      EXPECT_EQ(engine.step(), 1);
      EXPECT_EQ(world->model(rank).parameter("fc.bias")[2], 0.25f - 0.5f);
    });
    EXPECT_THAT(messages, Each(HasSubstr("of parameter 'fc.bias' on w1 (rank 1)")));
  }
}

TEST(Step, RefusesAStepInWhichNoRankHasSamples) {
  JoinedWorld world(2);
  const std::vector<float> before = Parameters(world->model(0));
  world->Run([&](int rank) {
    EXPECT_THAT(world->engine(rank).Step({.samples = 0}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no rank has samples")));
    EXPECT_EQ(world->engine(rank).step(), 0);
    LOCKSTEP_EXPECT_OK(world->engine(rank).Step({.samples = rank}));
  });
  EXPECT_EQ(Parameters(world->model(0)), before);  // zero gradients, plain SGD
}

TEST(Step, RefusesWrongOptionsBeforeAnythingMoves) {
  JoinedWorld world(2);
  const std::pair<StepOptions, std::string> cases[] = {
      {{.samples = -1}, "-1 samples"},
      {{.max_grad_norm = -1}, "max_grad_norm is -1"},
      {{.max_grad_norm = std::nan("")}, "max_grad_norm is nan"},
      {{.loss_scale = 0}, "loss_scale is 0"},
      {{.loss_scale = -1}, "loss_scale is -1"},
      {{.loss_scale = 1e31}, "loss_scale is 1e+31; allowed is 1e-30 to 1e+30"},
      {{.loss_scale = std::nan("")}, "loss_scale is nan"},
  };
  for (const auto& [options, message] : cases) {
    EXPECT_THAT(world->engine(0).Step(options),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
  world->Run([&](int rank) { LOCKSTEP_EXPECT_OK(world->engine(rank).Step({})); });
}

TEST(Step, ClipsTheAveragedGradientByItsNormOverAllShards) {
  JoinedWorld world(3);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    EXPECT_EQ(engine.stats().last_grad_norm, std::nullopt);
    // The average over 4 samples is 3 in one element and 4 in another, of two shards.
    const auto step = [&](double max_grad_norm) {
      if (rank == 1) {
        world->model(rank).gradient("fc.weight")[0] = 12;
        world->model(rank).gradient("fc.bias")[4] = 16;
      }
      LOCKSTEP_EXPECT_OK(engine.Step({.samples = rank == 1 ? 2 : 1,
                                      .loss = LossReduction::kSum,
                                      .max_grad_norm = max_grad_norm}));
      if (max_grad_norm == 0) {
        EXPECT_EQ(engine.stats().last_grad_norm, std::nullopt);
      } else {
        EXPECT_EQ(engine.stats().last_grad_norm, 5);
      }
      return world->model(rank).parameter("fc.bias")[4];
    };
    EXPECT_EQ(step(0), 0.25f - 0.5f * 4);
    EXPECT_EQ(step(6), 0.25f - 0.5f * 8);
    EXPECT_EQ(step(std::numeric_limits<double>::infinity()), 0.25f - 0.5f * 12);
    EXPECT_NEAR(step(2.5), 0.25f - 0.5f * 14, 1e-6);
  });
}

TEST(Step, ARefusalLeavesTheLastNormAlone) {
  JoinedWorld world(2);
  world->Run([&](int rank) {
    world->model(rank).gradient("fc.bias")[0] = 3;
    LOCKSTEP_EXPECT_OK(world->engine(rank).Step({.max_grad_norm = 5}));
    world->model(rank).gradient("fc.bias")[0] = std::nanf("");
    EXPECT_THAT(world->engine(rank).Step({}), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(world->engine(rank).stats().last_grad_norm, 3);
  });
}

TEST(Step, ADifferentMaximalNormIsNamedOnEveryRankAndChangesNothing) {
  JoinedWorld world(3);
  const std::vector<float> before = Parameters(world->model(0));
  world->Run([&](int rank) {
    world->model(rank).gradient("fc.bias")[0] = 1;
    EXPECT_THAT(world->engine(rank).Step({.max_grad_norm = rank == 2 ? 0.5 : 1}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("max_grad_norm at step 1"), HasSubstr("1 on w0 (rank 0)"),
                               HasSubstr("0.5 on w2 (rank 2)"))));
    EXPECT_EQ(Parameters(world->model(rank)), before);
  });
}

TEST(Step, TakesTheLearningRateThatWasSetLast) {
  JoinedWorld world(2);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    EXPECT_EQ(engine.learning_rate(), 0.5);
    const auto step = [&] {
      world->model(rank).gradient("fc.bias")[0] = 1;
      LOCKSTEP_EXPECT_OK(engine.Step({}));
      return world->model(rank).parameter("fc.bias")[0];
    };
    EXPECT_EQ(step(), 0.25f - 0.5f);
    LOCKSTEP_EXPECT_OK(engine.SetLearningRate(2));
    EXPECT_EQ(engine.learning_rate(), 2);
    EXPECT_EQ(step(), 0.25f - 2.5f);
    EXPECT_THAT(engine.SetLearningRate(-1), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(step(), 0.25f - 4.5f);
  });
}

TEST(Step, ADifferentLearningRateIsNamedOnEveryRankAndChangesNothing) {
  JoinedWorld world(2);
  const std::vector<float> before = Parameters(world->model(0));
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    world->model(rank).gradient("fc.bias")[0] = 1;
    if (rank == 1) {
      LOCKSTEP_EXPECT_OK(engine.SetLearningRate(0.25));
    }
    const absl::Status status = engine.Step({});
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr("the learning rate at step 1"),
                                       HasSubstr("0.5 on w0 (rank 0)"),
                                       HasSubstr("0.25 on w1 (rank 1)"))));
    EXPECT_EQ(Parameters(world->model(rank)), before);
    EXPECT_EQ(engine.SetLearningRate(0.5), status);  // the epoch is over
  });
}

TEST(Step, GroupsHaveSettingsOfTheirOwnWhereverShardsAreCut) {
  const OptimizerConfig grouped = AdamW{
      .lr = 0.01, .weight_decay = 0.5, .groups = {{.pattern = "**.bias", .lr_scale = 2,
                                                   .weight_decay = 0}}};
  const std::vector<float> alone = TrainAlone(grouped);
  EXPECT_EQ(Train(grouped, {6, 6}), alone);
  EXPECT_EQ(Train(grouped, {4, 4, 4}), alone);
  EXPECT_EQ(Train(grouped, {3, 3, 3, 3}), alone);
  // Weights go as without the group, biases as if all were in it.
  const std::vector<float> weights = TrainAlone(AdamW{.lr = 0.01, .weight_decay = 0.5});
  const std::vector<float> biases = TrainAlone(AdamW{.lr = 0.02, .weight_decay = 0});
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(alone[i], i < kWeights ? weights[i] : biases[i]) << i;
  }
}

TEST(Step, DividesTheGradientByTheScaleOfTheLossAndRefusesOverflowOnAllRanks) {
  JoinedWorld world(2);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    const auto step = [&](float gradient, double loss_scale) {
      world->model(rank).gradient("fc.bias")[0] = gradient;
      return engine.Step({.max_grad_norm = 2, .loss_scale = loss_scale});
    };
    // What overflowed on one rank.
    EXPECT_THAT(step(rank == 0 ? std::numeric_limits<float>::infinity() : 1.0f, 65536),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("not finite"), HasSubstr("multiplied by 65536"),
                               HasSubstr("lower loss_scale"))));
    EXPECT_EQ(world->model(rank).parameter("fc.bias")[0], 0.25f);
    LOCKSTEP_EXPECT_OK(step(1024, 1024));
    EXPECT_EQ(engine.stats().last_grad_norm, 1);  // below 2: not clipped
    EXPECT_EQ(world->model(rank).parameter("fc.bias")[0], 0.25f - 0.5f);
    EXPECT_THAT(step(1, rank == 0 ? 1 : 2),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("loss_scale at step 2"), HasSubstr("2 on w1 (rank 1)"))));
  });
}

TEST(Step, AppliesAnEntryOnAllRanksAfterTheStepInWhichTheLastKnewIt) {
  JoinedWorld world(3);
  SyncPolicy revised;
  revised.ignore_list = {"bn.*"};
  const ControlEntry entry = {LogNumber(1), PolicyRevised{Revision(2), revised}};
  // Rank r knows it from step 2 * r + 1 on: the last one from step 5 on.
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    for (int step = 1; step <= 8; ++step) {
      if (step == 2 * rank + 1) world->link(rank).Append(entry);
      LOCKSTEP_ASSERT_OK(engine.BeforeForward());
      EXPECT_EQ(engine.revision(), Revision(step <= 5 ? 1 : 2)) << "rank " << rank;
      LOCKSTEP_ASSERT_OK(engine.Step({}));
    }
    EXPECT_EQ(engine.policy(), revised);
    ASSERT_EQ(engine.applied().size(), 1u);
    EXPECT_EQ(engine.applied()[0].number, LogNumber(1));
    EXPECT_EQ(engine.applied()[0].step, 5);
    EXPECT_THAT(world->link(rank).applied(),
                ElementsAre(Applied{Epoch(1), LogNumber(1), 5}));
  });
}

TEST(Step, LeavesEntriesForLaterWhenItIsRefused) {
  JoinedWorld world(2);
  world->Run([&](int rank) {
    world->link(rank).Append({LogNumber(1), PolicyRevised{Revision(2), {}}});
    EXPECT_THAT(world->engine(rank).Step({.samples = 0}),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(world->engine(rank).revision(), Revision(1));
    EXPECT_THAT(world->engine(rank).applied(), IsEmpty());
    LOCKSTEP_EXPECT_OK(world->engine(rank).Step({.samples = 1}));
    EXPECT_EQ(world->engine(rank).revision(), Revision(2));
  });
}

TEST(Step, ReportsItsProgressWithTheLastMetrics) {
  JoinedWorld world(2);
  world->Run([&](int rank) {
    world->engine(rank).Report(Phase::kEvaluating, {{"loss", 0.5}});
    LOCKSTEP_EXPECT_OK(world->engine(rank).Step({}));
    EXPECT_EQ(world->link(rank).progress().back(),
              (Heartbeat{Epoch(1),
                         1,
                         Phase::kTraining,
                         {{"loss", 0.5}},
                         world->engine(rank).stats().sync}));
  });
}

TEST(Step, MetricsThatAreNotReportedAgainKeepTheirValues) {
  JoinedWorld world(1);
  Engine& engine = world->engine(0);
  engine.Report(Phase::kTraining, {{"loss", 0.5}, {"revision", 1}});
  engine.Report(Phase::kEvaluating, {});
  EXPECT_EQ(world->link(0).progress().back(),
            (Heartbeat{Epoch(1), 0, Phase::kEvaluating, {{"loss", 0.5}, {"revision", 1}}}));
  engine.Report(Phase::kTraining, {{"loss", 0.25}});
  EXPECT_EQ(world->link(0).progress().back(),
            (Heartbeat{Epoch(1), 0, Phase::kTraining, {{"loss", 0.25}, {"revision", 1}}}));
}

TEST(Step, AnInterruptEndsItOnEveryRank) {
  JoinedWorld world(2);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    if (rank == 0) {
      EXPECT_THAT(engine.Step({}), StatusIs(absl::StatusCode::kAborted, HasSubstr("told to stop")));
    } else {
      engine.Interrupt(absl::CancelledError("told to stop"));
      EXPECT_THAT(engine.Step({}), StatusIs(absl::StatusCode::kAborted, HasSubstr("told to stop")));
    }
    EXPECT_EQ(engine.step(), 0);
  });
}

TEST(Step, LatchesTheFirstErrorOnEveryRank) {
  JoinedWorld world(3);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    if (rank == 1) world->link(rank).AbortEpoch(absl::UnavailableError("the host of w7 is down"));
    const absl::Status first = engine.Step({});
    EXPECT_THAT(first, StatusIs(absl::StatusCode::kAborted, HasSubstr("the host of w7 is down")));
    EXPECT_EQ(engine.Step({}), first);
    EXPECT_EQ(engine.BeforeForward(), first);
    EXPECT_EQ(engine.BeforeEvaluation(), first);
    EXPECT_EQ(engine.BroadcastBuffers(0), first);
    EXPECT_EQ(engine.BroadcastParameters(0), first);
    EXPECT_EQ(engine.MeasureBufferDrift().status(), first);
    EXPECT_EQ(engine.step(), 0);
  });
}

TEST(Step, TellsThePeersWhenAModelIsNoLongerInItsArena) {
  JoinedWorld world(2);
  world->Run([&](int rank) {
    if (rank == 0) {
      world->model(0).FailNextCollect(absl::FailedPreconditionError("'fc.weight' was moved"));
    }
    const absl::Status status = world->engine(rank).Step({});
    EXPECT_THAT(status, StatusIs(rank == 0 ? absl::StatusCode::kFailedPrecondition
                                           : absl::StatusCode::kAborted,
                                 HasSubstr("'fc.weight' was moved")));
    EXPECT_EQ(world->engine(rank).Step({}), status);
  });
}

TEST(Step, KeepsOneNthOfTheOptimizerStatePlusAlignment) {
  constexpr std::int64_t kElements = 1000;
  for (int size = 1; size <= 4; ++size) {
    ThreadedWorld world(size);
    for (int rank = 0; rank < size; ++rank) {
      world.model(rank).AddParameter("w", std::vector<float>(kElements));
    }
    world.Propose({});
    std::vector<std::int64_t> bytes(size);
    world.Run([&](int rank) {
      LOCKSTEP_ASSERT_OK(world.Join(rank, AdamW{}));
      bytes[rank] = world.engine(rank).stats().optimizer_bytes;
      EXPECT_LE(bytes[rank], 8 * (kElements / size + 2 * kAlignElements));
      EXPECT_EQ(world.link(rank).ready()[0].optimizer_bytes, bytes[rank]);
    });
    EXPECT_GE(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}), 8 * kElements);
    EXPECT_LE(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}),
              8 * (kElements + kAlignElements));
  }
}

// A millisecond passes whenever somebody looks.
class TickingClock final : public Clock {
 public:
  MonoTime Now() const override { return MonoTime() + absl::Milliseconds(++looks_); }
  absl::Time WallNow() const override { return absl::UnixEpoch(); }

 private:
  mutable std::atomic<int> looks_ = 0;
};

TEST(Stats, TellTheTimeOfSyncsAlone) {
  const auto clock = std::make_shared<TickingClock>();
  ThreadedWorld world(2);
  world.clock = clock;
  for (int rank = 0; rank < 2; ++rank) AddTensors(world.model(rank));
  world.Propose({});
  world.Run([&](int rank) { LOCKSTEP_ASSERT_OK(world.Join(rank, kSgd)); });
  const auto time = [&](int rank) { return world.engine(rank).stats().sync_time; };
  const std::vector<absl::Duration> joined = {time(0), time(1)};
  for (int i = 0; i < 100; ++i) clock->Now();
  const MonoTime begin = clock->Now();
  world.Run([&](int rank) { LOCKSTEP_ASSERT_OK(world.engine(rank).SyncBuffers()); });
  const MonoTime end = clock->Now();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_GE(time(rank) - joined[rank], absl::Milliseconds(1));
    EXPECT_LT(time(rank) - joined[rank], end - begin);
  }
}

}  // namespace
}  // namespace lockstep
