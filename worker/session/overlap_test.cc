// BeforeBackward(): gradients that travel while backward makes others train as those
// that do not, over any transport.
#include <cstdint>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "common/policy/sync_policy.h"
#include "common/protocol/messages.h"
#include "common/sharding/shard_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/torch.h"
#include "worker/engine/manual_link.h"
#include "worker/session/session.h"
#include "worker/torch/module_model.h"
#include "worker/torch/named_tensors.h"
#include "worker/transport/gloo/gloo_transport.h"
#include "worker/transport/in_process/in_process_transport.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

enum class Way { kInProcess, kInProcessAnnounced, kGloo, kGlooAnnounced };
bool Announces(Way way) { return way == Way::kInProcessAnnounced || way == Way::kGlooAnnounced; }

std::shared_ptr<TransportFactory> TransportsOf(Way way) {
  if (way == Way::kInProcess || way == Way::kInProcessAnnounced) {
    return std::make_shared<InProcessFactory>();
  }
  return std::make_shared<GlooFactory>(GlooOptions{.bucket_bytes = kMinBucketBytes});
}

// Layers of some buckets, one of a short type, one that is frozen and two that some
// ranks do not use in some steps.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(3);
    first = register_module("first", torch::nn::Linear(300, 1200));
    unused = register_module("unused", torch::nn::Linear(300, 37));
    frozen = register_module("frozen", torch::nn::Linear(1200, 300));
    for (at::Tensor& parameter : frozen->parameters()) parameter.requires_grad_(false);
    half = register_module("half", torch::nn::Linear(300, 701));
    half->to(torch::kBFloat16);
    sometimes = register_module("sometimes", torch::nn::Linear(701, 701));
    last = register_module("last", torch::nn::Linear(701, 5));
  }
  at::Tensor forward(const at::Tensor& x, bool with_unused, bool with_sometimes) {
    at::Tensor y = torch::relu(frozen->forward(torch::relu(first->forward(x))));
    y = half->forward(y.to(torch::kBFloat16)).to(torch::kFloat);
    if (with_sometimes) y = y + sometimes->forward(torch::tanh(y));
    at::Tensor loss = last->forward(y).square().mean();
    if (with_unused) loss = loss + unused->forward(x).square().mean();
    return loss;
  }

  torch::nn::Linear first{nullptr}, unused{nullptr}, frozen{nullptr}, half{nullptr},
      sometimes{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

struct Rank {
  int rank;
  int world_size;
  Way way;
  Net& net;
  Session& session;

  // The loss of micro-batch `index` of this rank in `step`.
  at::Tensor Loss(int step, int index = 0) {
    // Ranks are threads, which share LibTorch's generator.
    const at::Tensor x =
        torch::arange(900, torch::kFloat).add(1000 * step + 10 * rank + index).mul(0.7).sin()
            .view({3, 300});
    return net->forward(x, (step + rank) % 3 == 0, (step + index) % 2 == 0);
  }
  absl::Status Announce(const StepOptions& options) {
    return Announces(way) ? session.BeforeBackward(options) : absl::OkStatus();
  }
};

// Runs `body` on ranks side by side; their parameters in the end.
std::vector<at::Tensor> Train(Way way, int world_size, const std::function<void(Rank&)>& body) {
  at::set_num_threads(1);
  EndpointBoard board;
  const std::shared_ptr<TransportFactory> transports = TransportsOf(way);
  std::vector<Net> nets;
  std::vector<std::string> members;
  for (int rank = 0; rank < world_size; ++rank) {
    nets.emplace_back();
    members.push_back(absl::StrCat("w", rank));
  }
  std::latch over(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<Session> session;
      [&] {
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest,
                                      ModuleModel(TensorsOf(*nets[rank])).Describe());
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(manifest, world_size));
        auto link = std::make_unique<ManualLink>(&board);
        link->Propose({.epoch = Epoch(1),
                       .members = members,
                       .plan = plan,
                       .revision = Revision(1),
                       .ready_timeout = absl::Seconds(60)});
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(
            session,
            Session::JoinBy(std::move(link), transports,
                            {.worker = members[rank], .rejoin_timeout = absl::ZeroDuration()},
                            *nets[rank], AdamW{.lr = 1e-2}));
        Rank each = {rank, world_size, way, nets[rank], *session};
        body(each);
      }();
      // Nobody goes while others still ask who is there.
      over.arrive_and_wait();
      if (session != nullptr) session->Leave(absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 1; rank < world_size; ++rank) {
    for (std::size_t i = 0; i < nets[0]->parameters().size(); ++i) {
      EXPECT_TRUE(torch::equal(nets[rank]->parameters()[i], nets[0]->parameters()[i]))
          << "rank " << rank << ", " << nets[0]->named_parameters()[i].key();
    }
  }
  return nets[0]->parameters();
}

void ExpectTheSameBits(int world_size, const std::function<void(Rank&)>& body) {
  const std::vector<at::Tensor> expected = Train(Way::kInProcess, world_size, body);
  for (const Way way : {Way::kInProcessAnnounced, Way::kGloo, Way::kGlooAnnounced}) {
    const std::vector<at::Tensor> parameters = Train(way, world_size, body);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::equal(parameters[i], expected[i]))
          << world_size << " ranks, way " << static_cast<int>(way) << ", parameter " << i;
    }
  }
}

TEST(Overlap, TrainsToTheSameBits) {
  for (const int world_size : {1, 2, 3, 4}) {
    ExpectTheSameBits(world_size, [](Rank& each) {
      for (int step = 0; step < 4; ++step) {
        const StepOptions options = {.samples = 3 + each.rank};
        LOCKSTEP_ASSERT_OK(each.session.BeforeForward());
        const at::Tensor loss = each.Loss(step);
        LOCKSTEP_ASSERT_OK(each.Announce(options));
        LOCKSTEP_ASSERT_OK(each.Announce(options));  // does nothing
        loss.backward();
        LOCKSTEP_ASSERT_OK(each.session.Step(options));
      }
    });
  }
}

TEST(Overlap, ClipsToTheSameBits) {
  ExpectTheSameBits(3, [](Rank& each) {
    for (int step = 0; step < 3; ++step) {
      const at::Tensor loss = each.Loss(step);
      LOCKSTEP_ASSERT_OK(each.Announce({}));
      loss.backward();
      LOCKSTEP_ASSERT_OK(each.session.Step({.max_grad_norm = step == 0 ? 1e-3 : 1e3}));
    }
  });
}

TEST(Overlap, AccumulatesToTheSameBitsAlsoWithRanksThatHaveNoData) {
  ExpectTheSameBits(3, [](Rank& each) {
    for (int step = 0; step < 3; ++step) {
      const bool has_data = each.rank != step;
      const StepOptions options = {.samples = has_data ? 9 : 0, .loss = LossReduction::kSum};
      for (int index = 0; index < 3; ++index) {
        if (index == 2) {
          LOCKSTEP_ASSERT_OK(each.Announce(options));
        }
        if (has_data) each.Loss(step, index).backward();
      }
      LOCKSTEP_ASSERT_OK(each.session.Step(options));
    }
  });
}

TEST(Overlap, AStepThatIsRefusedLeavesAllWellAndTrainingGoesOn) {
  ExpectTheSameBits(3, [](Rank& each) {
    for (int step = 0; step < 6; ++step) {
      const bool nobody_has_data = step == 1;
      const bool not_finite = step == 3;
      const StepOptions options = {.samples = nobody_has_data ? 0 : 3,
                                   .max_grad_norm = step < 3 ? 0.0 : 1.0};
      at::Tensor loss = each.Loss(step);
      if (not_finite && each.rank == 1) loss = loss * std::numeric_limits<float>::infinity();
      // Some steps are announced and some are not, behind refused ones too.
      if (step != 2) {
        LOCKSTEP_ASSERT_OK(each.Announce(options));
      }
      loss.backward();
      if (nobody_has_data || not_finite) {
        EXPECT_THAT(each.session.Step(options),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             HasSubstr(not_finite ? "not finite" : "no rank has samples")));
      } else {
        LOCKSTEP_ASSERT_OK(each.session.Step(options));
      }
    }
    EXPECT_EQ(each.session.step(), 4);
  });
}

TEST(Overlap, OtherOptionsInASecondAnnouncementAreRefusedAndChangeNothing) {
  for (const Way way : {Way::kInProcessAnnounced, Way::kGlooAnnounced}) {
    Train(way, 2, [](Rank& each) {
      LOCKSTEP_ASSERT_OK(each.Announce({.samples = 3}));
      EXPECT_THAT(each.Announce({.samples = 4}),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           AllOf(HasSubstr("count for 3"), HasSubstr("count for 4"))));
      EXPECT_THAT(each.Announce({.samples = -1}), StatusIs(absl::StatusCode::kInvalidArgument));
      each.Loss(0).backward();
      EXPECT_THAT(each.session.Step({.samples = -1}),
                  StatusIs(absl::StatusCode::kInvalidArgument));
      LOCKSTEP_ASSERT_OK(each.session.Step({.samples = 3}));
    });
  }
}

TEST(Overlap, OtherCollectiveCallsBeforeTheStepAreRefusedAndChangeNothing) {
  for (const Way way : {Way::kInProcessAnnounced, Way::kGlooAnnounced}) {
    Train(way, 2, [](Rank& each) {
      LOCKSTEP_ASSERT_OK(each.Announce({}));
      for (const absl::Status& status :
           {each.session.BeforeForward(), each.session.BeforeEvaluation(),
            each.session.BeforeCheckpoint(), each.session.SyncBuffers(),
            each.session.BroadcastBuffers(0), each.session.BroadcastParameters(0),
            each.session.MeasureBufferDrift().status()}) {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("between BeforeBackward() and Step()")));
      }
      each.Loss(0).backward();
      LOCKSTEP_ASSERT_OK(each.session.Step({}));
      LOCKSTEP_ASSERT_OK(each.session.SyncBuffers());
    });
  }
}

// On rank 1 `spoil` goes before the step, which says so; the others learn of it.
void ExpectTheEndOfTheEpoch(const std::string& message, const StepOptions& of_rank_1,
                            const std::function<void(Rank&)>& spoil) {
  for (const Way way : {Way::kInProcessAnnounced, Way::kGlooAnnounced}) {
    Train(way, 3, [&](Rank& each) {
      LOCKSTEP_ASSERT_OK(each.Announce({.samples = 3}));
      each.Loss(0).backward();
      if (each.rank == 1) {
        spoil(each);
        for (int i = 0; i < 2; ++i) {
          EXPECT_THAT(each.session.Step(of_rank_1),
                      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(message)));
        }
      } else {
        EXPECT_THAT(each.session.Step({.samples = 3}),
                    StatusIs(absl::StatusCode::kAborted,
                             AllOf(HasSubstr("w1 (rank 1)"), HasSubstr(message))));
      }
    });
  }
}

TEST(Overlap, AStepWithOtherOptionsEndsTheEpochAndSaysSo) {
  ExpectTheEndOfTheEpoch("announced before backward to count for 3, and now is to count for 4",
                         {.samples = 4}, [](Rank&) {});
}

TEST(Overlap, GradientsThatWereChangedAfterBackwardEndTheEpochAndAreNamed) {
  ExpectTheEndOfTheEpoch("'last.weight' was changed", {.samples = 3}, [](Rank& each) {
    each.net->last->weight.mutable_grad().mul_(2);
  });
  ExpectTheEndOfTheEpoch("'last.weight' was changed", {.samples = 3}, [](Rank& each) {
    each.net->last->weight.mutable_grad() = at::Tensor();
  });
  ExpectTheEndOfTheEpoch("'last.weight' was changed", {.samples = 3}, [](Rank& each) {
    each.net->last->weight.mutable_grad() = torch::ones_like(each.net->last->weight);
  });
  ExpectTheEndOfTheEpoch("was changed", {.samples = 3},
                         [](Rank& each) { each.Loss(1).backward(); });
}

TEST(Overlap, LeavingAndAbortsInTheMiddleEndWell) {
  for (const bool interrupt : {false, true}) {
    Train(Way::kGlooAnnounced, 3, [&](Rank& each) {
      const at::Tensor loss = each.Loss(0);
      LOCKSTEP_ASSERT_OK(each.Announce({}));
      if (each.rank == 1) {
        if (!interrupt) return each.session.Leave(absl::CancelledError("gone fishing"));
        std::thread([&] { each.session.Interrupt(absl::CancelledError("gone fishing")); }).join();
      }
      loss.backward();
      EXPECT_THAT(each.session.Step({}),
                  StatusIs(absl::StatusCode::kAborted, HasSubstr("gone fishing")));
    });
  }
}

}  // namespace
}  // namespace lockstep
