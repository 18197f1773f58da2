// Buffers that the graph of autograd knows.
#include <memory>
#include <vector>

#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/reports/nets.h"
#include "tests/reports/world.h"
#include "torch/torch.h"
#include "worker/transport/gloo/gloo_transport.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;

// linear(x) times a buffer, so that the graph saves the buffer.
struct ScaledNet : torch::nn::Module {
  ScaledNet() {
    torch::manual_seed(2);
    linear = register_module("linear", torch::nn::Linear(3, 2));
    scale = register_buffer("scale", torch::ones({2}));
  }
  at::Tensor forward(const at::Tensor& x) { return linear->forward(x) * scale; }
  void Scale(double value) {
    const torch::NoGradGuard no_grad;
    scale.fill_(value);
  }

  torch::nn::Linear linear = nullptr;
  at::Tensor scale;
};

// A discriminator with batch norm.
struct Discriminator : torch::nn::Module {
  Discriminator() {
    torch::manual_seed(4);
    body = register_module(
        "body", torch::nn::Sequential(torch::nn::Linear(3, 5), torch::nn::BatchNorm1d(5),
                                      torch::nn::LeakyReLU(), torch::nn::Linear(5, 1)));
  }
  at::Tensor Loss(const at::Tensor& fake_score, const at::Tensor& real_score) {
    return torch::softplus(fake_score).mean() + torch::softplus(-real_score).mean();
  }

  torch::nn::Sequential body = nullptr;
};

template <typename Net>
std::vector<std::shared_ptr<Net>> Same(int ranks) {
  return OnRanks<Net>(ranks, [](int) { return std::make_shared<Net>(); });
}

void ExpectEqualGradients(const torch::nn::Module& net, const torch::nn::Module& reference) {
  for (const auto& parameter : net.named_parameters()) {
    EXPECT_TRUE(torch::equal(parameter.value().grad(),
                             reference.named_parameters()[parameter.key()].grad()))
        << parameter.key();
  }
}

// pytorch#22095: "modified by an inplace operation".
TEST(TwoForwardsOneBackward, GiveTheGradientOfOneProcessThoughABufferIsInTheGraph) {
  const auto nets = Same<ScaledNet>(kRanks);
  const auto references = Same<ScaledNet>(kRanks);
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [&](Session& session, ScaledNet& net) -> absl::Status {
    net.Scale(3 + session.rank());  // the root's is 3
    LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
    const at::Tensor a = net.forward(SomeInput(session.rank()));
    LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
    const at::Tensor b = net.forward(SomeInput(10 + session.rank()));
    (a + 2 * b).sum().backward();

    ScaledNet& reference = *references[session.rank()];
    reference.Scale(3);
    (reference.forward(SomeInput(session.rank())) +
     2 * reference.forward(SomeInput(10 + session.rank()))).sum().backward();
    ExpectEqualGradients(net, reference);
    return session.Step({});
  }));
}

// pytorch#65907: an extra forward in evaluation mode before torch.autograd.grad.
TEST(TwoForwardsOneBackward, WorkWithBatchNormInEvaluationMode) {
  const auto nets = BatchNormNets(kRanks);
  const auto references = BatchNormNets(kRanks);
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [&](Session& session, BatchNormNet& net) -> absl::Status {
    BatchNormNet& reference = *references[session.rank()];
    net.eval();
    reference.eval();
    net.norm->running_var.fill_(4 + session.rank());
    reference.norm->running_var.fill_(4);
    const at::Tensor x = SomeInput(session.rank()).requires_grad_();
    LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
    const at::Tensor y = net.forward(x).sum();
    LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
    net.forward(SomeInput(20));
    const at::Tensor gradient = torch::autograd::grad({y}, {x})[0];
    const at::Tensor expected = torch::autograd::grad({reference.forward(x).sum()}, {x})[0];
    EXPECT_TRUE(torch::equal(gradient, expected));
    return absl::OkStatus();
  }));
}

// The same report: a sync of what is equal already should write nothing.
TEST(SkippingUnchanged, LeavesEqualBuffersThatAGraphHasSavedAlone) {
  const auto nets = Same<ScaledNet>(kRanks);
  LOCKSTEP_EXPECT_OK(RunAll({.policy = {.skip_unchanged = true}}, nets,
                            [&](Session& session, ScaledNet& net) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
    const at::Tensor y = net.forward(SomeInput(0)).sum();
    LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
    y.backward();
    return session.Step({});
  }));
}

// fairscale broadcasts `buffer.data`, behind autograd's back: silently wrong
// gradients. A write that matters must be seen.
TEST(ASyncBetweenForwardAndBackward, IsRefusedByAutogradWhereItChangedTheGraph) {
  const auto nets = Same<ScaledNet>(kRanks);
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [&](Session& session, ScaledNet& net) -> absl::Status {
    net.Scale(3 + session.rank());
    const at::Tensor y = net.forward(SomeInput(0)).sum();
    LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
    if (session.rank() == 0) {
      EXPECT_NO_THROW(y.backward());  // the root's buffer kept its value
    } else {
      EXPECT_THROW(y.backward(), c10::Error);
    }
    return absl::OkStatus();
  }));
}

// pytorch#62474, pytorch#66504, and pytorch#110363 for track_running_stats.
TEST(TwoForwardsOneBackward, WorkWithBatchNormInTrainingMode) {
  for (const bool tracks : {true, false}) {
    const auto make = [&](int) {
      return std::make_shared<BatchNormNet>(
          torch::nn::BatchNorm1dOptions(2).track_running_stats(tracks));
    };
    const auto nets = OnRanks<BatchNormNet>(kRanks, make);
    const auto references = OnRanks<BatchNormNet>(kRanks, make);
    LOCKSTEP_EXPECT_OK(RunAll({}, nets, [&](Session& session, BatchNormNet& net) -> absl::Status {
      BatchNormNet& reference = *references[session.rank()];
      if (tracks) {
        net.norm->running_mean.fill_(1 + session.rank());
        reference.norm->running_mean.fill_(1);
      }
      LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
      const at::Tensor a = net.forward(SomeInput(session.rank()));
      LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
      const at::Tensor b = net.forward(SomeInput(10 + session.rank()));
      (a * b).sum().backward();
      const at::Tensor first = reference.forward(SomeInput(session.rank()));
      const at::Tensor second = reference.forward(SomeInput(10 + session.rank()));
      (first * second).sum().backward();
      ExpectEqualGradients(net, reference);
      EXPECT_TRUE(BuffersAreEqual(net, reference));
      return session.Step({.samples = 4});
    }));
  }
}

// pytorch#175024: the discriminator's step of a GAN.
TEST(TwoForwardsOneBackward, TrainTheDiscriminatorOfAGan) {
  const auto nets = Same<Discriminator>(kRanks);
  const auto references = Same<Discriminator>(kRanks);
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [&](Session& session, Discriminator& net) -> absl::Status {
    Discriminator& reference = *references[session.rank()];
    for (int step = 0; step < 3; ++step) {
      const at::Tensor fake = SomeInput(session.rank());
      const at::Tensor real = SomeInput(10 + session.rank());
      LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
      {
        // The reference begins each step with what the ranks have agreed on.
        const torch::NoGradGuard no_grad;
        for (const auto& item : net.named_parameters()) {
          reference.named_parameters()[item.key()].copy_(item.value());
          reference.named_parameters()[item.key()].mutable_grad() = at::Tensor();
        }
        for (const auto& item : net.named_buffers()) {
          reference.named_buffers()[item.key()].copy_(item.value());
        }
      }
      const at::Tensor fake_score = net.body->forward(fake);
      LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
      const at::Tensor real_score = net.body->forward(real);
      net.Loss(fake_score, real_score).backward();

      const at::Tensor fake_reference = reference.body->forward(fake);
      const at::Tensor real_reference = reference.body->forward(real);
      reference.Loss(fake_reference, real_reference).backward();
      ExpectEqualGradients(net, reference);
      LOCKSTEP_RETURN_IF_ERROR(session.Step({.samples = 4}));
    }
    return absl::OkStatus();
  }));
  for (const auto& item : nets[0]->named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), nets[1]->named_parameters()[item.key()])) << item.key();
  }
}

// pytorch#70260 proposes to put another tensor in the buffer's place; whoever holds
// the old one would lose it.
TEST(ASync, WritesIntoTheTensorThatOthersHoldAndPutsNoOtherInItsPlace) {
  const auto nets = BufferNets(kRanks, [](int) -> NamedBuffers {
    return {{"plain", torch::zeros({4})}, {"strided", torch::zeros({2, 3}).t()}};
  });
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [&](Session& session, BufferNet& net) -> absl::Status {
    for (const char* name : {"plain", "strided"}) net.Fill(name, 5 + session.rank());
    const at::Tensor plain = net.buffer("plain");
    const at::Tensor strided = net.buffer("strided");
    const at::Tensor weight = net.weight();
    const void* const memory = strided.const_data_ptr();
    LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
    LOCKSTEP_RETURN_IF_ERROR(session.BroadcastParameters(0));
    EXPECT_TRUE(plain.is_same(net.buffer("plain")));
    EXPECT_TRUE(strided.is_same(net.buffer("strided")));
    EXPECT_EQ(strided.const_data_ptr(), memory);
    EXPECT_TRUE(weight.is_same(net.named_parameters()["weight"]));
    EXPECT_TRUE(torch::equal(plain, torch::full({4}, 5)));
    EXPECT_TRUE(torch::equal(strided, torch::full({3, 2}, 5)));
    return absl::OkStatus();
  }));
}

// stylegan2-pytorch#236, StyleTTS2#7, BasicSR#541: broadcast_buffers=False was the
// only way out of a broadcast between two forwards.
TEST(ASyncBehindTheStep, KeepsBuffersEqualAndNeverComesBetweenForwards) {
  const auto nets = BatchNormNets(kRanks);
  LOCKSTEP_EXPECT_OK(RunAll(
      {.policy = {.schedule = {.every_forwards = 0, .every_steps = 1}}}, nets,
      [&](Session& session, BatchNormNet& net) -> absl::Status {
        for (int step = 0; step < 3; ++step) {
          const std::int64_t syncs = session.stats().sync.syncs;
          LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
          const at::Tensor a = net.forward(SomeInput(step + session.rank()));
          const at::Tensor b = net.forward(SomeInput(10 + step + session.rank()));
          (a * b).sum().backward();
          EXPECT_EQ(session.stats().sync.syncs, syncs);
          LOCKSTEP_RETURN_IF_ERROR(session.Step({.samples = 4}));
          EXPECT_EQ(session.stats().sync.syncs, syncs + 1);
        }
        return absl::OkStatus();
      }));
  EXPECT_TRUE(HoldTheSame(*nets[0], *nets[1]));
  EXPECT_EQ(nets[1]->norm->num_batches_tracked.item<std::int64_t>(), 6);
}

// vector-quantize-pytorch#57: a buffer that is computed from parameters keeps its
// graph, and memory grows with every sync.
TEST(ASync, OfABufferWithAGraphMovesItsValueAndAddsNothingToTheGraph) {
  const at::Tensor learned = torch::ones({2}).requires_grad_();
  const auto nets = BufferNets(kRanks, [&](int rank) -> NamedBuffers {
    return {{"plain", learned * (3 + rank)},
            {"strided", (learned.repeat({2, 1}) * (5 + rank)).t().clone()}};
  });
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [&](Session& session, BufferNet& net) -> absl::Status {
    const at::Tensor plain = net.buffer("plain");
    const at::Tensor strided = net.buffer("strided");
    const auto plain_graph = plain.grad_fn();
    const auto strided_graph = strided.grad_fn();
    for (int i = 0; i < 3; ++i) LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
    EXPECT_EQ(plain.grad_fn(), plain_graph);
    EXPECT_EQ(strided.grad_fn(), strided_graph);
    EXPECT_TRUE(torch::equal(plain.detach(), torch::full({2}, 3.0f)));
    EXPECT_TRUE(torch::equal(strided.detach(), torch::full({2, 2}, 5.0f)));
    return absl::OkStatus();
  }));
}

// fairscale#102: Gloo refuses tensors that require a gradient.
TEST(ASync, OfABufferThatRequiresAGradientWorksOverGloo) {
  const auto nets = BufferNets(kRanks, [](int rank) -> NamedBuffers {
    return {{"learned", torch::full({3}, 7.0f + rank).requires_grad_()}};
  });
  LOCKSTEP_EXPECT_OK(RunAll(
      {.policy = OnCommandOnly(), .transports = std::make_shared<GlooFactory>(GlooOptions())}, nets,
      [&](Session& session, BufferNet& net) -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
        EXPECT_TRUE(net.buffer("learned").requires_grad());
        EXPECT_TRUE(net.buffer("learned").is_leaf());
        EXPECT_TRUE(torch::equal(net.buffer("learned").detach(), torch::full({3}, 7.0f)));
        return absl::OkStatus();
      }));
}

}  // namespace
}  // namespace lockstep
