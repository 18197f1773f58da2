// The conformance suite over NcclFactory on real GPUs, one for each rank, and what becomes of
// ranks whose peers never come.
//
//   gpu_conformance --nccl=FILE --cuda-runtime=FILE --describe    one line of JSON
//   gpu_conformance --nccl=FILE --cuda-runtime=FILE --ranks=N [--gtest_...]
//
// Arenas are managed memory, which the suite reads and writes directly, so sums are made by
// HostMath.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/device/host_math.h"
#include "worker/transport/conformance/conformance.h"
#include "worker/transport/conformance/tensors.h"
#include "worker/transport/nccl/nccl_api.h"
#include "worker/transport/nccl/nccl_transport.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Set by main() before the tests are made.
NcclApi real_api;
int conformance_ranks = 1;
int gpus = 0;

NcclOptions OptionsOf(int device) {
  return {.api = real_api,
          .device = device,
          .math = std::make_shared<HostMath>(),
          .piece_bytes = 1 << 18,  // several in a shard of the larger tests
          .managed_arenas = true};
}

// Rank r on GPU r.
class GpuFactory final : public TransportFactory {
 public:
  std::string name() const override { return "nccl on GPUs"; }
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override {
    return NcclFactory(OptionsOf(group.rank)).Create(group, exchange);
  }
};

std::vector<ConformanceCase> Cases() {
  return {{.make_factory = [] { return std::make_shared<GpuFactory>(); },
           .world_size = conformance_ranks}};
}

INSTANTIATE_TEST_SUITE_P(Gpu, TransportConformance, testing::ValuesIn(Cases()),
                         ConformanceCaseName);

using Change = std::function<void(int rank, NcclOptions& options, Group& group)>;
using Body = std::function<absl::Status(int rank, Transport& transport)>;

// By rank, what `body` returned or why the rank did not form. `change`: what is different in
// a rank's options.
std::vector<absl::Status> RunRanks(int ranks, absl::Duration deadline, const Change& change,
                                   const Body& body) {
  std::promise<std::string> promise;
  const std::shared_future<std::string> endpoint = promise.get_future().share();
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      NcclOptions options = OptionsOf(rank);
      Group group = {
          .epoch = Epoch(4), .rank = rank, .members = MemberNames(ranks), .deadline = deadline};
      if (change != nullptr) change(rank, options, group);
      auto transport = NcclFactory(options).Create(
          group, [&](const std::optional<std::string>& mine) -> absl::StatusOr<std::string> {
            if (mine.has_value()) promise.set_value(*mine);
            return endpoint.get();
          });
      statuses[rank] = transport.ok() ? body(rank, **transport) : transport.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

absl::Status BroadcastOnce(Transport& transport) {
  Tensors tensors = OneOfEachDType(1);
  return transport.Broadcast(tensors.views(), 0);
}

absl::Status MustNotForm(int rank, Transport&) {
  return absl::InternalError(absl::StrCat("rank ", rank, " formed without its peer"));
}

// That GPUs 0 to `ranks` - 1 work.
void ExpectUsable(int ranks) {
  const std::vector<absl::Status> statuses = RunRanks(
      ranks, absl::Seconds(60), nullptr, [&](int rank, Transport& transport) -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(BroadcastOnce(transport));
        LOCKSTEP_ASSIGN_OR_RETURN(
            const Arena arena, transport.Allocate(ArenaUse::kGradients, DType::kFloat32, 1000));
        std::ranges::fill(arena.floats(), 2.0f);
        const std::vector<Shard> shards = EvenShards(1000, ranks);
        const ConsumeSums check = [&](std::int64_t, std::span<const float> sums) {
          EXPECT_THAT(sums, testing::Each(2.0f * ranks));
        };
        return transport.ReduceToOwners(arena, shards, EqualWeights(ranks), check);
      });
  EXPECT_THAT(statuses, testing::Each(IsOk()));
}

// A rank that meets the others over TCP, and never comes to NCCL: all is in progress for ever.
void NeverComesToNccl(NcclOptions& options) {
  // A rank's own GPU is not used, so one will do for two ranks.
  options.device = 0;
  options.api.CommInitRankConfig = [](ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t*) {
    *comm = nullptr;
    return ncclInProgress;
  };
  options.api.CommGetAsyncError = [](ncclComm_t, ncclResult_t* error) {
    *error = ncclInProgress;
    return ncclSuccess;
  };
}

TEST(GpuFailures, APeerThatIsMissingIsNamedAtTheDeadline) {
  const std::string nobody = "nobody else comes";
  const Group group = {
      .epoch = Epoch(4), .members = MemberNames(2), .deadline = absl::Seconds(2)};
  const ExchangeEndpoint exchange =
      [&](const std::optional<std::string>& mine) -> absl::StatusOr<std::string> {
    return mine.value_or(nobody);
  };
  EXPECT_THAT(NcclFactory(OptionsOf(0)).Create(group, exchange),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("w1 (rank 1)")));
  ExpectUsable(1);
}

TEST(GpuFailures, APeerThatNeverComesToNcclEndsFormingAtTheDeadline) {
  const std::vector<absl::Status> statuses = RunRanks(
      2, absl::Seconds(3),
      [](int rank, NcclOptions& options, Group& group) {
        if (rank == 1) NeverComesToNccl(options);
        // So that the rank which waits in NCCL is the one that ends the epoch.
        if (rank == 1) group.deadline = absl::Seconds(60);
      },
      MustNotForm);
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("the forming of the communicator did not end within 3s")));
  EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kAborted));
  ExpectUsable(1);
}

std::atomic<bool> is_in_nccl = false;

TEST(GpuFailures, AnAbortFreesARankThatWaitsInNccl) {
  is_in_nccl = false;
  std::thread aborter;
  const std::vector<absl::Status> statuses = RunRanks(
      2, absl::Seconds(60),
      [&](int rank, NcclOptions& options, Group& group) {
        if (rank == 1) return NeverComesToNccl(options);
        options.api.CommGetAsyncError = [](ncclComm_t comm, ncclResult_t* error) {
          is_in_nccl = true;
          is_in_nccl.notify_all();
          return real_api.CommGetAsyncError(comm, error);
        };
        group.on_forming = [&aborter](Transport* transport) {
          if (transport == nullptr) return aborter.join();
          aborter = std::thread([transport] {
            is_in_nccl.wait(false);
            transport->Abort(absl::UnavailableError("the epoch ended"));
          });
        };
      },
      MustNotForm);
  if (aborter.joinable()) aborter.join();  // it formed
  EXPECT_THAT(statuses,
              testing::Each(StatusIs(absl::StatusCode::kAborted, HasSubstr("the epoch ended"))));
  ExpectUsable(1);
}

// The other's kernel is on its GPU by then, and spins.
TEST(GpuFailures, ACollectiveThatAPeerNeverStartsEndsAtTheDeadline) {
  if (gpus < 2) GTEST_SKIP() << "it needs two GPUs";
  std::promise<void> ended;
  const std::vector<absl::Status> statuses = RunRanks(
      2, absl::Seconds(10),
      [](int rank, NcclOptions& options, Group& group) {
        if (rank == 1) {
          options.api.Broadcast = [](const void*, void*, std::size_t, ncclDataType_t, int,
                                     ncclComm_t, cudaStream_t) { return ncclSuccess; };
        }
      },
      [&](int rank, Transport& transport) {
        if (rank == 1) {
          const absl::Status status = BroadcastOnce(transport);
          ended.get_future().wait();
          return status;
        }
        const absl::Status status = BroadcastOnce(transport);
        ended.set_value();
        return status;
      });
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                    HasSubstr("the broadcast of tensors did not end within 10s")));
  ExpectUsable(2);
}

// What was loaded, as numbers of the libraries' own.
absl::Status Describe() {
  int nccl = 0;
  int runtime = 0;
  int driver = 0;
  if (real_api.GetVersion(&nccl) != ncclSuccess ||
      real_api.RuntimeGetVersion(&runtime) != cudaSuccess ||
      real_api.DriverGetVersion(&driver) != cudaSuccess) {
    return absl::InternalError("NCCL or CUDA does not say its version");
  }
  absl::PrintF("{\"gpus\": %d, \"nccl\": %d, \"cuda_runtime\": %d, \"cuda_driver\": %d}\n", gpus,
               nccl, runtime, driver);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  NcclLibraries libraries;
  bool describe = false;
  CLI::App app("The NCCL transport's conformance on real GPUs");
  app.allow_extras();  // GoogleTest's
  app.add_option("--nccl", libraries.nccl, "libnccl.so.2");
  app.add_option("--cuda-runtime", libraries.cuda_runtime, "libcudart.so.13");
  app.add_option("--ranks", conformance_ranks, "of the conformance suite, one GPU each");
  app.add_flag("--describe", describe, "say what was found, and test nothing");
  CLI11_PARSE(app, argc, argv);

  absl::Status status = [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(real_api, LoadNcclApi(libraries));
    if (real_api.GetDeviceCount(&gpus) != cudaSuccess || gpus < conformance_ranks) {
      return absl::FailedPreconditionError(absl::StrCat(
          conformance_ranks, " ranks need as many GPUs, but there are ", gpus));
    }
    return describe ? Describe() : absl::OkStatus();
  }();
  if (!status.ok()) {
    std::cerr << status.message() << std::endl;
    return 2;
  }
  if (describe) return 0;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
