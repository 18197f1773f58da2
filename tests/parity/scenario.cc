#include "tests/parity/scenario.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "ATen/ATen.h"
#include "common/base/prng.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/parity/torch_world.h"
#include "torch/nn/module.h"
#include "worker/transport/gloo/gloo_transport.h"
#include "worker/transport/in_process/in_process_transport.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {
namespace {

constexpr int kBatch = 12;  // of all ranks together

std::uint64_t SeedOf(const Turn& turn, int sample, std::size_t parameter) {
  return static_cast<std::uint64_t>((turn.step * 64 + sample) * 100) + parameter;
}

// Each rank has its own to begin with; the start-up broadcast makes them rank 0's.
at::Tensor InitialValues(const TypedParameter& parameter, int rank, std::size_t index) {
  at::Tensor values = at::empty(parameter.shape);
  Prng prng(1000 * (rank + 1) + index);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    values.mutable_data_ptr<float>()[i] = static_cast<float>(prng.Unit() * 2 - 1);
  }
  return values.to(parameter.type);
}

struct Net : torch::nn::Module {
  Net(const std::vector<TypedParameter>& parameters, int rank, c10::Device device = c10::kCPU) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor tensor =
          register_parameter(parameters[i].name, InitialValues(parameters[i], rank, i).to(device),
                             parameters[i].trainable);
      (parameters[i].trainable ? trainable : frozen).push_back(tensor);
    }
  }
  std::vector<at::Tensor> trainable;
  std::vector<at::Tensor> frozen;
};

// One makes one epoch.
std::shared_ptr<TransportFactory> FactoryOf(Over transport) {
  switch (transport) {
    case Over::kShm:
      return std::make_shared<ShmFactory>();
    case Over::kGloo:
      return std::make_shared<GlooFactory>(GlooOptions{});
    default:
      return std::make_shared<InProcessFactory>();
  }
}

absl::Status WriteAhead(const Scenario& scenario, const Turn& turn, bool shared,
                        const std::vector<at::Tensor>& parameters, Engine& engine) {
  if (scenario.written == nullptr) return absl::OkStatus();
  const std::optional<int> root =
      scenario.root == nullptr ? std::nullopt : scenario.root(turn.step, turn.world_size);
  const bool writes = !root || *root == turn.rank;
  const std::vector<at::Tensor> values = scenario.written(scenario, turn.step);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!values[i].defined()) continue;
    if (writes) {
      parameters[i].copy_(values[i]);
    } else if (!shared) {
      parameters[i].fill_(turn.rank);
    }
  }
  return root ? engine.BroadcastParameters(*root) : absl::OkStatus();
}

absl::Status TrainRank(const Scenario& scenario, int rank, int world_size, bool shared,
                       const Net& net, Engine& engine, Outcome* outcome) {
  for (int step = 0; step < scenario.steps; ++step) {
    const Turn turn = {step, rank, world_size};
    LOCKSTEP_RETURN_IF_ERROR(WriteAhead(scenario, turn, shared, net.trainable, engine));
    LOCKSTEP_RETURN_IF_ERROR(engine.BeforeForward());
    const RankStep part = scenario.part(scenario, turn);
    if (scenario.deliver == nullptr) {
      Backward(net.trainable, part.gradients);
    } else {
      scenario.deliver(net.trainable, part, turn);
    }
    if (scenario.learning_rate != nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(engine.SetLearningRate(scenario.learning_rate(step)));
    }
    const absl::Status status = engine.Step(part.options);
    if (!status.ok() && !absl::IsInvalidArgument(status)) return status;
    for (const at::Tensor& parameter : net.trainable) EXPECT_FALSE(parameter.grad().defined());
    if (rank != 0) continue;
    if (!status.ok() && outcome->first_refusal.empty()) {
      outcome->first_refusal = std::string(status.message());
    }
    outcome->refused.push_back(!status.ok());
    outcome->norms.push_back(status.ok() ? engine.stats().last_grad_norm.value_or(0) : 0);
  }
  return absl::OkStatus();
}

bool BitEqual(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::ScalarType bits = a.element_size() == 2 ? at::kShort : at::kInt;
  return a.detach().contiguous().view(bits).equal(b.detach().contiguous().view(bits));
}

// Order-preserving: neighbours differ by 1.
at::Tensor Ordered(const at::Tensor& values) {
  const bool is_short = values.element_size() == 2;
  const at::Tensor bits =
      values.detach().contiguous().view(is_short ? at::kShort : at::kInt).to(at::kLong);
  const std::int64_t sign = is_short ? -(std::int64_t{1} << 15) : -(std::int64_t{1} << 31);
  return at::where(bits < 0, sign - bits, bits);
}

}  // namespace

std::string NameOf(Over transport) {
  switch (transport) {
    case Over::kShm:
      return "over shm";
    case Over::kGloo:
      return "over gloo";
    default:
      return "in-process";
  }
}

std::vector<TypedParameter> Scenario::Trainable() const {
  std::vector<TypedParameter> trainable;
  std::ranges::copy_if(parameters, std::back_inserter(trainable), &TypedParameter::trainable);
  return trainable;
}

void Backward(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients) {
  at::Tensor loss;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const at::Tensor term =
        (parameters[i] * gradients[i].to(parameters[i].device())).sum().to(at::kFloat);
    loss = loss.defined() ? loss + term : term;
  }
  if (loss.defined()) loss.backward();
}

Outcome TrainInLockstep(const Scenario& scenario, int world_size, Over transport) {
  Outcome outcome;
  std::vector<std::shared_ptr<Net>> nets;
  for (int rank = 0; rank < world_size; ++rank) {
    nets.push_back(std::make_shared<Net>(scenario.parameters, rank, scenario.device));
  }
  const bool shared = transport == Over::kShm;
  LOCKSTEP_EXPECT_OK(TrainTogether(
      {.optimizer = scenario.optimizer,
       .transports = FactoryOf(transport),
       .device = scenario.device},
      {nets.begin(), nets.end()}, [&](int rank, Engine& engine) {
        return TrainRank(scenario, rank, world_size, shared, *nets[rank], engine, &outcome);
      }));
  for (const auto& net : nets) {
    std::vector<at::Tensor>& parameters = outcome.parameters.emplace_back();
    for (const at::Tensor& each : net->trainable) parameters.push_back(each.detach().cpu());
    for (const at::Tensor& each : net->frozen) parameters.push_back(each.cpu());
  }
  return outcome;
}

Outcome TrainSerially(const Scenario& scenario, int world_size) {
  Outcome outcome;
  const Net net(scenario.parameters, 0);
  std::vector<int> groups;
  for (const TypedParameter& parameter : scenario.Trainable()) groups.push_back(parameter.group);
  SerialReference reference(scenario.optimizer, net.trainable, groups);
  for (int step = 0; step < scenario.steps; ++step) {
    if (scenario.written != nullptr) {
      const std::vector<at::Tensor> values = scenario.written(scenario, step);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i].defined()) reference.Write(i, values[i]);
      }
    }
    std::vector<RankStep> ranks;
    for (int rank = 0; rank < world_size; ++rank) {
      ranks.push_back(scenario.part(scenario, {step, rank, world_size}));
    }
    if (scenario.learning_rate != nullptr) {
      reference.SetLearningRate(scenario.learning_rate(step));
    }
    const std::optional<double> norm = reference.Step(ranks);
    outcome.refused.push_back(!norm);
    outcome.norms.push_back(ranks[0].options.max_grad_norm == 0 ? 0 : norm.value_or(0));
  }
  outcome.parameters.push_back(reference.parameters());
  std::ranges::copy(net.frozen, std::back_inserter(outcome.parameters.back()));
  return outcome;
}

void ExpectEqual(const Outcome& outcome, const Outcome& reference, const std::string& what) {
  EXPECT_EQ(outcome.refused, reference.refused) << what << ": " << outcome.first_refusal;
  EXPECT_EQ(outcome.norms, reference.norms) << what;
  const std::vector<at::Tensor>& expected = reference.parameters[0];
  for (std::size_t rank = 0; rank < outcome.parameters.size(); ++rank) {
    ASSERT_EQ(outcome.parameters[rank].size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(BitEqual(outcome.parameters[rank][i], expected[i]))
          << what << ", rank " << rank << ", parameter " << i << ", which is up to "
          << LargestUlpDistance(outcome.parameters[rank][i], expected[i]) << " ULP away";
    }
  }
}

void ExpectParity(const Scenario& scenario, const std::string& what) {
  for (int world_size = 1; world_size <= 4; ++world_size) {
    const Outcome reference = TrainSerially(scenario, world_size);
    for (const Over transport : {Over::kInProcess, Over::kShm}) {
      ExpectEqual(TrainInLockstep(scenario, world_size, transport), reference,
                  what + " on " + std::to_string(world_size) + " ranks " + NameOf(transport));
    }
  }
}

std::int64_t LargestUlpDistance(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  return (Ordered(a) - Ordered(b)).abs().max().item<std::int64_t>();
}

at::Tensor DyadicGradient(const TypedParameter& parameter, std::uint64_t seed) {
  at::Tensor gradient = at::empty(parameter.shape);
  Prng prng(seed);
  for (std::int64_t i = 0; i < gradient.numel(); ++i) {
    gradient.mutable_data_ptr<float>()[i] = static_cast<float>(prng.Between(-8, 8)) / 16;
  }
  return gradient.to(parameter.type);
}

at::Tensor RoundingGradient(const TypedParameter& parameter, std::uint64_t seed) {
  at::Tensor gradient = at::empty(parameter.shape);
  Prng prng(seed);
  for (std::int64_t i = 0; i < gradient.numel(); ++i) {
    gradient.mutable_data_ptr<float>()[i] = static_cast<float>(
        std::ldexp(prng.Unit() * 2 - 1, static_cast<int>(prng.Between(-9, 1))));
  }
  return gradient.to(parameter.type);
}

RankStep ExactPart(const Scenario& scenario, const Turn& turn) {
  RankStep part = {.options = {.samples = 0, .loss = LossReduction::kSum}};
  const std::vector<TypedParameter> trainable = scenario.Trainable();
  std::vector<at::Tensor> sums(trainable.size());
  for (int sample = 0; sample < kBatch; ++sample) {
    const int owner =
        turn.step % 5 == 4 ? turn.world_size - 1 : sample % turn.world_size;
    if (owner != turn.rank) continue;
    ++part.options.samples;
    for (std::size_t i = 0; i < trainable.size(); ++i) {
      const at::Tensor gradient = DyadicGradient(trainable[i], SeedOf(turn, sample, i));
      sums[i] = sums[i].defined() ? sums[i] + gradient : gradient;
    }
  }
  part.gradients = std::move(sums);
  return part;
}

RankStep RoundingPart(const Scenario& scenario, const Turn& turn) {
  RankStep part = {.options = {.samples = 1 + (turn.step + turn.rank) % 4}};
  const std::vector<TypedParameter> trainable = scenario.Trainable();
  for (std::size_t i = 0; i < trainable.size(); ++i) {
    part.gradients.push_back(RoundingGradient(trainable[i], SeedOf(turn, turn.rank, i)));
  }
  return part;
}

}  // namespace lockstep
