// What becomes of steps and state when ranks are lost, join and leave: values are those of a run
// that nothing happened to.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/engine/forwarding_transport.h"
#include "worker/engine/shared_parameters.h"
#include "worker/engine/threaded_world.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kWeights = 700;
constexpr std::int64_t kSteps = 12;

void AddTensors(VectorModel& model) {
  std::vector<float> weights(kWeights);
  for (std::int64_t i = 0; i < kWeights; ++i) weights[i] = 0.01f * static_cast<float>(i % 89);
  model.AddParameter("fc.weight", std::move(weights));
  model.AddFrozenParameter("embedding", {1, 2, 3});
  model.AddBuffer<float>("bn.running_mean", {0, 0});
}

// A rank's gradient in the step behind `step`: the same on all, so that the average of any number
// of ranks has the same bits as `ranks` times it divided by `ranks`.
void Backward(VectorModel& model, std::int64_t step, float times = 1) {
  const std::span<float> gradient = model.gradient("fc.weight");
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const std::int64_t value = (static_cast<std::int64_t>(i) * 7 + step * 13) % 31 - 15;
    gradient[i] = times * static_cast<float>(value) / 16;
  }
}

std::vector<float> Weights(VectorModel& model) {
  const std::span<const float> values = model.parameter("fc.weight");
  return {values.begin(), values.end()};
}

// The parameters behind each step of an undisturbed run, in which step s had ranks[s] ranks.
std::vector<float> Undisturbed(const OptimizerConfig& optimizer, const std::vector<int>& ranks,
                               double max_grad_norm) {
  VectorModel model;
  AddTensors(model);
  auto engine = Engine::Alone(optimizer, {}, &model);
  EXPECT_TRUE(engine.ok());
  for (std::size_t step = 0; step < ranks.size(); ++step) {
    Backward(model, static_cast<std::int64_t>(step), static_cast<float>(ranks[step]));
    LOCKSTEP_EXPECT_OK((*engine)->Step({.samples = ranks[step],
                                        .loss = LossReduction::kSum,
                                        .max_grad_norm = max_grad_norm}));
  }
  return Weights(model);
}

struct Scenario {
  int size = 4;
  int replicas = 2;
  OptimizerConfig optimizer = AdamW{.lr = 0.05};
  double max_grad_norm = 0;
  bool shared = false;  // parameters are one memory, as in shared memory
  // Who dies, in which phase of the step behind `step`.
  int victim = 1;
  StepPhase phase = StepPhase::kAgreed;
  std::int64_t step = 5;
};

// In-process transports, whose epochs have one parameter memory each if `shared`.
class EpochFactory final : public TransportFactory {
 public:
  EpochFactory(TransportFactory* base, bool shared) : base_(base), shared_(shared) {}
  std::string name() const override { return base_->name(); }
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override {
    auto made = base_->Create(group, exchange);
    if (!made.ok() || !shared_) return made;
    const std::lock_guard lock(mu_);
    auto& memory = memory_[group.epoch];
    if (memory == nullptr) memory = std::make_shared<std::vector<float>>(2 * kWeights);
    return std::make_unique<SharedParameters>(*std::move(made), memory);
  }

 private:
  TransportFactory* const base_;
  const bool shared_;
  std::mutex mu_;
  std::map<Epoch, std::shared_ptr<std::vector<float>>> memory_;
};

class RecoveringTest : public testing::Test {
 protected:
  explicit RecoveringTest() = default;

  // Trains until `kSteps` with epoch 1 of all and, once one is lost, epoch 2 of the others.
  void Run(const Scenario& scenario) {
    world_ = std::make_unique<ThreadedWorld>(scenario.size);
    world_->optimizer_replicas = scenario.replicas;
    EpochFactory transports(world_->transports(), scenario.shared);
    std::vector<int> survivors;
    for (int rank = 0; rank < scenario.size; ++rank) {
      AddTensors(world_->model(rank));
      if (rank != scenario.victim) survivors.push_back(rank);
    }
    // What a process that is killed does from then on: nothing that others see.
    world_->on_phase = [&](int rank, StepPhase phase, std::int64_t step) {
      if (rank != scenario.victim || phase != scenario.phase || step != scenario.step) return;
      world_->engine(rank).Interrupt(absl::UnavailableError("the process is gone"));
    };
    world_->Propose({});
    world_->ProposeTo(survivors, {}, Epoch(2));
    world_->Run([&](int rank) {
      LOCKSTEP_ASSERT_OK(world_->Join(rank, scenario.optimizer, &transports));
      absl::Status status;
      while (status.ok() && world_->engine(rank).step() < kSteps) {
        status = TakeStep(rank, scenario.max_grad_norm);
        if (status.ok()) continue;
        if (rank == scenario.victim) return;
        ASSERT_TRUE(world_->engine(rank).CanRejoin()) << status;
        status = world_->Rejoin(rank, scenario.optimizer, &transports);
        if (rank == survivors[0] && status.ok()) resumed_at_ = world_->engine(rank).step();
      }
      if (rank == survivors[0]) end_ = status;
    });
  }

  absl::Status TakeStep(int rank, double max_grad_norm) {
    Engine& engine = world_->engine(rank);
    absl::Status status = engine.BeforeForward();
    if (!status.ok()) return status;
    Backward(world_->model(rank), engine.step());
    return engine.Step(
        {.samples = 1, .loss = LossReduction::kSum, .max_grad_norm = max_grad_norm});
  }

  std::unique_ptr<ThreadedWorld> world_;
  std::int64_t resumed_at_ = -1;
  absl::Status end_;
};

// A rank that stops takes the parameters out of its arenas, also where another still writes to its
// shard of the memory they share: they are of no step, and replaced when the next epoch begins. To
// ThreadSanitizer that is a race, as it would be in one process.
#if defined(__SANITIZE_THREAD__)
constexpr bool kShares[] = {false};
#else
constexpr bool kShares[] = {false, true};
#endif

constexpr StepPhase kPhases[] = {
    StepPhase::kForward,  StepPhase::kCollected, StepPhase::kAgreed,   StepPhase::kReducing,
    StepPhase::kPreparing, StepPhase::kPrepared, StepPhase::kCommitted, StepPhase::kUpdating,
    StepPhase::kSpreading, StepPhase::kApplying};

TEST_F(RecoveringTest, WithReplicasALostRankCostsNoStepAndNoState) {
  for (const bool shared : kShares) {
    for (const double max_grad_norm : {0.0, 0.5}) {
      for (const StepPhase phase : kPhases) {
        for (const int victim : {0, 2, 3}) {
          SCOPED_TRACE(absl::StrCat("w", victim, " dies when ", StepPhaseName(phase),
                                    shared ? ", shared" : "", ", clipped to ", max_grad_norm));
          Scenario scenario = {.max_grad_norm = max_grad_norm, .shared = shared,
                               .victim = victim, .phase = phase};
          Run(scenario);
          LOCKSTEP_ASSERT_OK(end_);
          // Until all have prepared it nobody may have committed it.
          const bool taken = phase >= StepPhase::kCommitted;
          if (phase != StepPhase::kPrepared) {
            EXPECT_EQ(resumed_at_, taken ? scenario.step + 1 : scenario.step);
          }
          std::vector<int> ranks(kSteps, 4);
          std::fill(ranks.begin() + resumed_at_, ranks.end(), 3);
          const std::vector<float> expected =
              Undisturbed(scenario.optimizer, ranks, max_grad_norm);
          for (int rank = 0; rank < 4; ++rank) {
            if (rank == victim) continue;
            EXPECT_EQ(Weights(world_->model(rank)), expected) << rank;
            EXPECT_EQ(world_->engine(rank).samples(), 4 * resumed_at_ + 3 * (kSteps - resumed_at_));
            EXPECT_EQ(world_->engine(rank).world_size(), 3);
          }
        }
      }
    }
  }
}

// Its coordinator may give an epoch up at any time, as when the process was stopped for longer
// than its lease.
TEST_F(RecoveringTest, ARankThatIsAloneLosesNothingToAnAbort) {
  for (const StepPhase phase : kPhases) {
    SCOPED_TRACE(StepPhaseName(phase));
    world_ = std::make_unique<ThreadedWorld>(1);
    world_->optimizer_replicas = 2;
    AddTensors(world_->model(0));
    world_->on_phase = [&](int, StepPhase reached, std::int64_t step) {
      if (reached != phase || step != 5 || world_->engine(0).epoch() != Epoch(1)) return;
      world_->engine(0).Interrupt(absl::UnavailableError("the epoch is over"));
    };
    world_->Propose({});
    world_->ProposeTo({0}, {}, Epoch(2));
    world_->Run([&](int rank) {
      LOCKSTEP_ASSERT_OK(world_->Join(rank, AdamW{.lr = 0.05}));
      while (world_->engine(rank).step() < kSteps) {
        if (TakeStep(rank, 0).ok()) continue;
        ASSERT_EQ(world_->engine(rank).epoch(), Epoch(1));
        LOCKSTEP_ASSERT_OK(world_->Rejoin(rank, AdamW{.lr = 0.05}, world_->transports()));
      }
    });
    EXPECT_EQ(world_->engine(0).epoch(), Epoch(2));
    EXPECT_EQ(Weights(world_->model(0)),
              Undisturbed(AdamW{.lr = 0.05}, std::vector<int>(kSteps, 1), 0));
  }
}

TEST_F(RecoveringTest, EveryOptimizerGoesOn) {
  for (const OptimizerConfig& optimizer :
       std::vector<OptimizerConfig>{Sgd{.lr = 0.1}, Sgd{.lr = 0.1, .momentum = 0.9},
                                    Adam{.lr = 0.02}, Adagrad{.lr = 0.1, .lr_decay = 0.01}}) {
    SCOPED_TRACE(Describe(optimizer));
    Run({.optimizer = optimizer, .phase = StepPhase::kSpreading});
    LOCKSTEP_ASSERT_OK(end_);
    std::vector<int> ranks(kSteps, 4);
    std::fill(ranks.begin() + resumed_at_, ranks.end(), 3);
    EXPECT_EQ(Weights(world_->model(0)), Undisturbed(optimizer, ranks, 0));
  }
}

TEST_F(RecoveringTest, WithoutReplicasTheStateOfALostRankIsGoneAndAllSaySo) {
  Run({.replicas = 1, .phase = StepPhase::kAgreed});
  EXPECT_THAT(end_, StatusIs(absl::StatusCode::kDataLoss,
                             AllOf(HasSubstr("optimizer state"), HasSubstr("checkpoint"))));
}

TEST_F(RecoveringTest, BeforeTheFirstStepNothingIsLost) {
  Run({.replicas = 1, .phase = StepPhase::kForward, .step = 0});
  LOCKSTEP_ASSERT_OK(end_);
  EXPECT_EQ(Weights(world_->model(0)),
            Undisturbed(AdamW{.lr = 0.05}, std::vector<int>(kSteps, 3), 0));
}

}  // namespace
}  // namespace lockstep
