// Element types: every one moves, none is changed, and none is averaged wrongly.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "common/manifest/manifest.h"
#include "common/policy/model_check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reports/nets.h"
#include "tests/reports/world.h"
#include "torch/torch.h"
#include "worker/transport/gloo/gloo_transport.h"
#include "worker/transport/in_process/in_process_transport.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr c10::ScalarType kTypes[] = {
    c10::kBool, c10::kChar, c10::kShort, c10::kInt, c10::kLong, c10::kByte, c10::kUInt16,
    c10::kUInt32, c10::kUInt64, c10::kHalf, c10::kBFloat16, c10::kFloat, c10::kDouble,
    c10::kComplexHalf, c10::kComplexFloat, c10::kComplexDouble, c10::kFloat8_e4m3fn,
    c10::kFloat8_e5m2, c10::kFloat8_e4m3fnuz, c10::kFloat8_e5m2fnuz, c10::kFloat8_e8m0fnu};

std::vector<std::shared_ptr<TransportFactory>> AllTransports() {
  return {std::make_shared<InProcessFactory>(), std::make_shared<ShmFactory>(),
          std::make_shared<GlooFactory>(GlooOptions())};
}

// Three elements of any bits but for bool, which has two values; other ones on each
// rank.
std::vector<std::byte> SomeBytes(c10::ScalarType type, int rank) {
  std::vector<std::byte> bytes(3 * c10::elementSize(type));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(type == c10::kBool ? (i + rank) % 2 : 37 * i + 255 - rank);
  }
  return bytes;
}

NamedBuffers OneOfEachType(int rank) {
  NamedBuffers buffers;
  for (const c10::ScalarType type : kTypes) {
    const at::Tensor tensor = torch::empty({3}, type);
    const std::vector<std::byte> bytes = SomeBytes(type, rank);
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    buffers.emplace_back(c10::toString(type), tensor);
  }
  return buffers;
}

// pytorch#24137, pytorch#40978, DALLE-pytorch#36 (bool); torchcomms#2974,
// cosmos-rl#722 (int16, unsigned, complex); pytorch#71613, pytorch#46745,
// llama2.c#37 (complex).
TEST(ABroadcast, MovesTheBytesOfEveryElementTypeOverEveryTransport) {
  for (const auto& transports : AllTransports()) {
    const auto nets = BufferNets(2, OneOfEachType);
    LOCKSTEP_EXPECT_OK(
        RunAll({.policy = OnCommandOnly(), .transports = transports}, nets,
               [](Session& session, BufferNet&) { return session.BroadcastBuffers(1); }));
    for (const c10::ScalarType type : kTypes) {
      const std::vector<std::byte> expected = SomeBytes(type, 1);
      for (const auto& net : nets) {
        const at::Tensor tensor = net->buffer(c10::toString(type));
        EXPECT_EQ(tensor.scalar_type(), type);
        EXPECT_EQ(std::memcmp(tensor.const_data_ptr(), expected.data(), expected.size()), 0)
            << c10::toString(type) << " over " << transports->name();
      }
    }
  }
}

// The same reports: rotary tables are complex and strided.
TEST(ABroadcast, MovesComplexTablesThatAreStridedOrConjugated) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    const at::Tensor table =
        torch::polar(torch::ones({4, 2}), torch::arange(8).reshape({4, 2}).to(torch::kFloat)) *
        (1 + rank);
    return {{"freqs_cis", table},
            {"transposed", table.clone().t()},
            {"conjugated", table.clone().conj()},
            {"conjugated_on_rank_0", rank == 0 ? table.clone().conj() : table.clone()}};
  });
  const at::Tensor table =
      torch::polar(torch::ones({4, 2}), torch::arange(8).reshape({4, 2}).to(torch::kFloat));
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [](Session& session, BufferNet& net) -> absl::Status {
    return TrainStep(session, net);
  }));
  EXPECT_TRUE(torch::equal(nets[1]->buffer("freqs_cis"), table));
  EXPECT_TRUE(torch::equal(nets[1]->buffer("transposed"), table.t()));
  for (const char* name : {"conjugated", "conjugated_on_rank_0"}) {
    EXPECT_TRUE(torch::equal(nets[1]->buffer(name).resolve_conj(), table.conj().resolve_conj()));
  }
  EXPECT_TRUE(nets[1]->buffer("conjugated").is_conj());
  EXPECT_FALSE(nets[1]->buffer("conjugated_on_rank_0").is_conj());
}

// pytorch#118696: an error on some ranks or a hang.
TEST(ElementTypesThatDifferAmongRanks, AreAnErrorOnEveryRankThatNamesBoth) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    return {{"scale", torch::full({2}, 1.0f * rank, rank == 0 ? torch::kFloat : torch::kHalf)}};
  });
  const auto statuses =
      RunRanks({}, nets, [](Session&, BufferNet&) { return absl::OkStatus(); });
  EXPECT_THAT(
      statuses,
      Each(StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("'scale'"),
                          HasSubstr("float32[2] by broadcast from rank 0 on w0 (rank 0)"),
                          HasSubstr("float16[2] by broadcast from rank 0 on w1 (rank 1)")))));
  EXPECT_TRUE(torch::equal(nets[1]->buffer("scale"), torch::ones({2}, torch::kHalf)));
}

// fairscale#442, fairscale#449, pytorch#143900, pytorch#146114, pytorch#93391.
TEST(ASync, KeepsTheElementTypesOfAModelOfMixedPrecision) {
  for (const Operation operation : {Operation::kBroadcast, Operation::kMean}) {
    const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
      return {{"running_mean", torch::full({2}, 1 + 2.0f * rank)},
              {"activations", torch::full({2}, 1 + 2.0f * rank, torch::kBFloat16)},
              {"half", torch::full({2}, 1 + 2.0f * rank, torch::kHalf)}};
    });
    for (const auto& net : nets) {
      net->register_parameter("frozen", torch::full({2}, 0.5f, torch::kBFloat16),
                              /*requires_grad=*/false);
    }
    LOCKSTEP_EXPECT_OK(RunAll(
        {.policy = {.operation = operation, .schedule = {.at_start = false}}}, nets,
        [](Session& session, BufferNet& net) { return TrainStep(session, net); }));
    const float expected = operation == Operation::kBroadcast ? 1 : 2;
    for (const auto& net : nets) {
      EXPECT_TRUE(torch::equal(net->buffer("running_mean"), torch::full({2}, expected)));
      EXPECT_TRUE(
          torch::equal(net->buffer("activations"), torch::full({2}, expected, torch::kBFloat16)));
      EXPECT_TRUE(torch::equal(net->buffer("half"), torch::full({2}, expected, torch::kHalf)));
      EXPECT_EQ(net->named_parameters()["frozen"].scalar_type(), torch::kBFloat16);
    }
  }
}

// keras#22638: num_batches_tracked was summed and divided.
TEST(AMeanOfABatchCounter, IsRefusedByNameBeforeItCanRun) {
  const Manifest manifest = {
      .buffers = {{"norm.running_mean", DType::kFloat32, {2}},
                  {"norm.num_batches_tracked", DType::kInt64, {}}}};
  EXPECT_THAT(CheckOperations({.operation = Operation::kMean}, manifest),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("norm.num_batches_tracked"), HasSubstr("int64"))));
  const auto net = std::make_shared<BatchNormNet>();
  EXPECT_THAT(Session::Join({.policy = {.operation = Operation::kMean}}, *net, Sgd{}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("norm.num_batches_tracked")));
}

// The same where nothing checked the policy: one rank's model is not the manifest's.
TEST(AMeanOfABatchCounter, IsRefusedAtTheSyncOnEveryRankAndTouchesNothing) {
  const auto nets = BatchNormNets(2);
  const auto statuses = RunRanks(
      {.policy = {.operation = Operation::kMean}}, nets,
      [](Session& session, BatchNormNet& net) -> absl::Status {
        net.norm->running_mean.fill_(session.rank());
        net.norm->num_batches_tracked.fill_(5 + session.rank());
        return session.BeforeForward();
      });
  EXPECT_THAT(statuses,
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            AllOf(HasSubstr("norm.num_batches_tracked"), HasSubstr("int64")))));
  EXPECT_TRUE(torch::equal(nets[1]->norm->running_mean, torch::ones({2})));
  EXPECT_EQ(nets[1]->norm->num_batches_tracked.item<std::int64_t>(), 6);
}

// The same report: the reviewer asked for a sum. Beyond 2^53 a double would round.
TEST(ABatchCounter, IsSummedOrTakenByMaximumExactly) {
  constexpr std::int64_t kLarge = (std::int64_t{1} << 60) + 1;
  for (const Operation operation : {Operation::kSum, Operation::kMax}) {
    const auto nets = BatchNormNets(2);
    SyncPolicy policy = OnCommandOnly();
    policy.operation = Operation::kMean;
    policy.rules = {{.pattern = "**.num_batches_tracked", .operation = operation}};
    LOCKSTEP_EXPECT_OK(RunAll({.policy = policy}, nets,
                              [&](Session& session, BatchNormNet& net) -> absl::Status {
      net.norm->running_mean.fill_(session.rank());
      net.norm->num_batches_tracked.fill_(kLarge + session.rank());
      return session.SyncBuffers();
    }));
    for (const auto& net : nets) {
      EXPECT_EQ(net->norm->num_batches_tracked.item<std::int64_t>(),
                operation == Operation::kSum ? 2 * kLarge + 1 : kLarge + 1);
      EXPECT_TRUE(torch::equal(net->norm->running_mean, torch::full({2}, 0.5f)));
    }
  }
}

// No public report: Gloo itself does not reduce bfloat16.
TEST(ABfloat16Buffer, IsBroadcastAndReducedOverGloo) {
  for (const auto& [operation, expected] : std::vector<std::pair<Operation, float>>{
           {Operation::kBroadcast, 1.5}, {Operation::kSum, 4.0}, {Operation::kMean, 2.0},
           {Operation::kMin, 1.5}, {Operation::kMax, 2.5}}) {
    const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
      return {{"stat", torch::full({3}, 1.5f + rank, torch::kBFloat16)}};
    });
    SyncPolicy policy = OnCommandOnly();
    policy.operation = operation;
    LOCKSTEP_EXPECT_OK(
        RunAll({.policy = policy, .transports = std::make_shared<GlooFactory>(GlooOptions())},
               nets, [](Session& session, BufferNet&) { return session.SyncBuffers(); }));
    for (const auto& net : nets) {
      EXPECT_TRUE(torch::equal(net->buffer("stat"), torch::full({3}, expected, torch::kBFloat16)))
          << OperationName(operation);
    }
  }
}

}  // namespace
}  // namespace lockstep
