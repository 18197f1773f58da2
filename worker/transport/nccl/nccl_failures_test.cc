// What becomes of errors of NCCL and CUDA, of ranks that hang or leave, and of what is under way
// then. That no rule of NCCL was broken and nothing is left is looked at by FakeGpus.
#include <algorithm>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/conformance/tensors.h"
#include "worker/transport/nccl/fake_gpus.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

using Fault = FakeNccl::Fault;

// One of each kind of what moves, and of calls to the table.
absl::Status WorkAWhile(int world_size, Transport& transport) {
  const std::int64_t elements = 300'001;
  LOCKSTEP_ASSIGN_OR_RETURN(const Arena gradients,
                            transport.Allocate(ArenaUse::kGradients, DType::kFloat32, elements));
  LOCKSTEP_ASSIGN_OR_RETURN(const Arena parameters,
                            transport.Allocate(ArenaUse::kParameters, DType::kFloat32, elements));
  const std::vector<Shard> shards = EvenShards(elements, world_size);
  const std::vector<float> weights = EqualWeights(world_size);
  Tensors tensors;
  tensors.Add("t", DType::kInt32, {1000}, 0);
  std::ranges::fill(tensors.values<std::int32_t>(0), transport.rank());
  LOCKSTEP_RETURN_IF_ERROR(transport.Broadcast(tensors.views(), 1));
  EXPECT_TRUE(AllAre<std::int32_t>(tensors.values<std::int32_t>(0), 1));
  LOCKSTEP_RETURN_IF_ERROR(transport.AllReduce(tensors.views(), ReduceOp::kSum));
  EXPECT_TRUE(AllAre<std::int32_t>(tensors.values<std::int32_t>(0), world_size));
  std::ranges::fill(gradients.floats(), 1.0f);
  const Shard mine = shards[transport.rank()];
  LOCKSTEP_RETURN_IF_ERROR(transport.UpdateShards(
      gradients, parameters, shards, weights, [&](std::int64_t begin, std::span<const float> sums) {
        std::ranges::copy(sums, &parameters.floats()[mine.begin + begin]);
      }));
  EXPECT_TRUE(AllAre<float>(parameters.floats(), static_cast<float>(world_size)));
  const ArenaShards part = {gradients, shards};
  LOCKSTEP_RETURN_IF_ERROR(transport.BeginReduction({&part, 1}, 1));
  transport.GradientsReady(gradients, 0, elements);
  LOCKSTEP_RETURN_IF_ERROR(transport.Agree({}).status());
  LOCKSTEP_RETURN_IF_ERROR(
      transport.ReduceToOwners(gradients, shards, weights, [&](auto, std::span<const float> sums) {
        EXPECT_TRUE(AllAre<float>(sums, static_cast<float>(world_size)));
      }));
  return transport.BroadcastFromOwners(parameters, std::vector<Shard>(world_size, Shard{0, 0}));
}

// Of an error that is no reason to give up, as there is another way or nothing more to do.
bool MayFail(absl::string_view function) {
  constexpr absl::string_view kFunctions[] = {
      "MemAlloc", "CommRegister", "CommAbort",     "MemFree",     "Free",
      "FreeHost", "EventDestroy", "StreamDestroy", "GetLastCudaError"};
  return std::ranges::find(kFunctions, function) != std::end(kFunctions);
}

TEST(NcclFailures, AnErrorOfAnyCallEndsTheEpochOnAllRanksAndLeavesNothingBehind) {
  std::vector<std::string> failed;
  for (const std::string& function : FakeNccl::EntryPoints()) {
    for (const int call : {0, 1, 5}) {
      SCOPED_TRACE(absl::StrCat(function, " ", call));
      Ends ends;
      FakeGpus gpus([&](int, NcclOptions& options) {
        options.end_process = [&](absl::string_view message) { ends.Add(message); };
      });
      gpus.fake().Inject({.function = function,
                          .call = call,
                          .device = 1,
                          .fault = Fault::kResult,
                          .result = FakeNccl::IsOfNccl(function)
                                        ? static_cast<int>(ncclInternalError)
                                        : static_cast<int>(cudaErrorUnknown)});
      const std::vector<absl::Status> statuses = RunOnGpus(
          gpus, 2, [](int, Transport& transport) { return WorkAWhile(2, transport); });
      const bool failed_here = gpus.fake().CallsOf(function, 1) > call;
      if (failed_here) failed.push_back(function);
      if (failed_here && MayFail(function)) gpus.MayLeak();
      EXPECT_EQ(ends.messages().size(), failed_here && function == "CommAbort" ? 1u : 0u);
      if (!failed_here || MayFail(function)) {
        EXPECT_THAT(statuses, Each(IsOk()));
        continue;
      }
      EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kInternal));
      // Rank 0 may be through with the last operation.
      if (!statuses[0].ok()) {
        EXPECT_THAT(statuses[0],
                    StatusIs(absl::StatusCode::kAborted, HasSubstr("w1 (rank 1) failed: ")));
      }
    }
  }
  for (const char* each : {"Broadcast", "AllGather", "Send", "Recv", "GroupEnd", "EventRecord",
                           "EventQuery", "MemcpyAsync", "CommAbort", "CommGetAsyncError"}) {
    EXPECT_THAT(failed, testing::Contains(each));
  }
}

TEST(NcclFailures, AnErrorSaysWhatWasDoneAndWhatNcclSaid) {
  FakeGpus gpus;
  gpus.fake().Inject({.function = "CommGetAsyncError",
                      .call = 12,
                      .device = 1,
                      .fault = Fault::kAsyncError,
                      .result = ncclInternalError});
  const std::vector<absl::Status> statuses =
      RunOnGpus(gpus, 3, [](int, Transport& transport) { return WorkAWhile(3, transport); });
  EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kInternal,
                                    AllOf(HasSubstr("NCCL failed in the "), HasSubstr("(code 3)"),
                                          HasSubstr("NCCL_DEBUG"))));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(statuses[rank], StatusIs(absl::StatusCode::kAborted, HasSubstr("(code 3)")));
  }
}

TEST(NcclFailures, DifferentVersionsOfNcclAreNamedBeforeACommunicatorIsFormed) {
  FakeGpus gpus([](int rank, NcclOptions& options) {
    if (rank != 1) return;
    options.api.GetVersion = [](int* version) {
      *version = 22809;
      return ncclSuccess;
    };
  });
  const int expected = FakeNccl::Options().nccl_version;
  EXPECT_THAT(
      RunOnGpus(gpus, 2, [](int, Transport&) { return absl::OkStatus(); }),
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr(absl::StrCat(expected / 10000, ".", expected / 100 % 100, ".",
                                                 expected % 100, " on w0 (rank 0)")),
                          HasSubstr("2.28.9 on w1 (rank 1)")))));
  EXPECT_EQ(gpus.fake().CallsOf("CommInitRankConfig"), 0);
  EXPECT_EQ(gpus.fake().CallsOf("GetUniqueId"), 0);
}

TEST(NcclFailures, DifferentBytesOfAPieceAreNamed) {
  FakeGpus gpus([](int rank, NcclOptions& options) { options.piece_bytes = 1024 << rank; });
  EXPECT_THAT(RunOnGpus(gpus, 2, [](int, Transport&) { return absl::OkStatus(); }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("1024 on w0 (rank 0), 2048 on w1 (rank 1)"))));
}

TEST(NcclFailures, ADeviceThatIsNotThereIsNamed) {
  FakeGpus gpus([](int rank, NcclOptions& options) {
    if (rank == 1) options.device = 8;
  });
  const std::vector<absl::Status> statuses =
      RunOnGpus(gpus, 2, [](int, Transport&) { return absl::OkStatus(); });
  EXPECT_THAT(statuses[1],
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no GPU 8, but 8")));
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kAborted, HasSubstr("no GPU 8, but 8")));
}

TEST(NcclFailures, SettingsWithoutAMeaningAreRefusedBeforeAnybodyIsMet) {
  for (const std::int64_t piece_bytes : {0, 8, 100}) {
    FakeGpus gpus([&](int, NcclOptions& options) { options.piece_bytes = piece_bytes; });
    EXPECT_THAT(RunOnGpus(gpus, 1, [](int, Transport&) { return absl::OkStatus(); }),
                Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("multiple of 16"))));
  }
  FakeGpus gpus([](int, NcclOptions& options) { options.math = nullptr; });
  EXPECT_THAT(RunOnGpus(gpus, 1, [](int, Transport&) { return absl::OkStatus(); }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("DeviceMath"))));
}

absl::Status BroadcastOnce(Transport& transport) {
  Tensors tensors = OneOfEachDType(1);
  return transport.Broadcast(tensors.views(), 0);
}

TEST(NcclFailures, ACollectiveThatAPeerNeverStartsEndsAtTheDeadline) {
  FakeGpus gpus;
  gpus.fake().Inject({.function = "Broadcast", .device = 1, .fault = Fault::kHold});
  const std::vector<absl::Status> statuses = RunOnGpus(
      gpus, 2,
      [&](int rank, Transport& transport) {
        const absl::Status status = BroadcastOnce(transport);
        if (rank == 0) gpus.fake().Release();
        return status;
      },
      absl::Milliseconds(500));
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("the broadcast of tensors did not end within 500ms"),
                             HasSubstr("w0 (rank 0)"))));
  EXPECT_THAT(statuses[1], testing::Not(IsOk()));
}

TEST(NcclFailures, AnAbortFreesARankThatWaitsForTheDeviceOnAllRanks) {
  FakeGpus gpus;
  gpus.fake().Inject({.function = "Broadcast", .device = 2, .fault = Fault::kHold});
  const auto body = [&](int rank, Transport& transport) {
    std::thread aborter;
    if (rank == 1) {
      aborter = std::thread([&] {
        EXPECT_TRUE(gpus.fake().AwaitHeld(1, absl::Seconds(30)));
        transport.Abort(absl::UnavailableError("the epoch ended"));
      });
    }
    const absl::Status status = BroadcastOnce(transport);
    if (rank == 0) gpus.fake().Release();
    if (aborter.joinable()) aborter.join();
    return status;
  };
  EXPECT_THAT(RunOnGpus(gpus, 3, body),
              Each(StatusIs(absl::StatusCode::kAborted, HasSubstr("the epoch ended"))));
}

// Nobody else comes.
TEST(NcclFailures, ARankThatWaitsForTheOthersToComeCanBeAborted) {
  FakeGpus gpus;
  std::thread coordinator;
  EXPECT_THAT(gpus.Create({.epoch = Epoch(4),
                           .members = MemberNames(2),
                           .on_forming =
                               [&](Transport* transport) {
                                 if (transport == nullptr) return coordinator.join();
                                 coordinator = std::thread([transport] {
                                   transport->Abort(absl::UnavailableError("w1 is lost"));
                                 });
                               }},
                          [](const std::optional<std::string>& mine) { return *mine; }),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("w1 is lost")));
}

TEST(NcclFailures, ARankThatWaitsForTheCommunicatorToFormCanBeAborted) {
  FakeGpus gpus;
  gpus.fake().Inject({.function = "CommInitRankConfig", .device = 1, .fault = Fault::kHold});
  std::promise<std::string> promise;
  const std::shared_future<std::string> endpoint = promise.get_future().share();
  const auto exchange =
      [&](const std::optional<std::string>& mine) -> absl::StatusOr<std::string> {
    if (mine.has_value()) promise.set_value(*mine);
    return endpoint.get();
  };
  std::thread peer([&] {
    EXPECT_THAT(
        gpus.Create({.epoch = Epoch(4), .rank = 1, .members = MemberNames(2)}, exchange),
        StatusIs(absl::StatusCode::kAborted, HasSubstr("w1 cannot open it")));
  });
  std::thread coordinator;
  std::vector<bool> told;  // whether there was a transport
  EXPECT_THAT(gpus.Create({.epoch = Epoch(4),
                           .members = MemberNames(2),
                           .on_forming =
                               [&](Transport* transport) {
                                 told.push_back(transport != nullptr);
                                 if (transport == nullptr) return coordinator.join();
                                 coordinator = std::thread([&gpus, transport] {
                                   EXPECT_TRUE(gpus.fake().AwaitHeld(1, absl::Seconds(30)));
                                   transport->Abort(absl::UnavailableError("w1 cannot open it"));
                                 });
                               }},
                          exchange),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("w1 cannot open it")));
  EXPECT_EQ(told, (std::vector<bool>{true, false}));
  gpus.fake().Release();
  peer.join();
}

TEST(NcclFailures, WhatNcclCallsAnErrorOfARemoteRankIsNamedByThoseWhoKnowIt) {
  FakeGpus gpus;
  gpus.fake().Inject(
      {.function = "Broadcast", .device = 0, .fault = Fault::kResult, .result = ncclRemoteError});
  gpus.fake().Inject({.function = "Broadcast", .device = 1, .fault = Fault::kHold});
  const auto body = [&](int rank, Transport& transport) {
    std::thread dying;
    if (rank == 1) {
      dying = std::thread([&] {
        EXPECT_TRUE(gpus.fake().AwaitHeld(1, absl::Seconds(30)));
        transport.Abort(absl::UnavailableError("the power of w1 is gone"));
        gpus.fake().Release();
      });
    }
    const absl::Status status = BroadcastOnce(transport);
    if (dying.joinable()) dying.join();
    return status;
  };
  EXPECT_THAT(RunOnGpus(gpus, 2, body)[0],
              StatusIs(absl::StatusCode::kAborted, HasSubstr("the power of w1")));
}

TEST(NcclFailures, ARankThatLeavesWhileOthersWorkIsNamed) {
  for (const int operations : {0, 1}) {
    FakeGpus gpus;
    const std::vector<absl::Status> statuses =
        RunOnGpus(gpus, 3, [&](int rank, Transport& transport) -> absl::Status {
          for (int i = 0; i < operations; ++i) LOCKSTEP_RETURN_IF_ERROR(BroadcastOnce(transport));
          return rank == 2 ? absl::OkStatus() : BroadcastOnce(transport);
        });
    for (const int rank : {0, 1}) {
      EXPECT_THAT(statuses[rank],
                  StatusIs(absl::StatusCode::kUnavailable, HasSubstr("w2 (rank 2)")));
    }
  }
}

// What a rank is through with may still be on its way from it.
TEST(NcclFailures, NoRankAbortsBeforeOthersAreThroughWithTheLastOperation) {
  FakeGpus gpus;
  gpus.fake().Inject({.function = "MemcpyAsync", .device = 2, .fault = Fault::kDelay,
                      .delay = absl::Milliseconds(200)});
  EXPECT_THAT(RunOnGpus(gpus, 3,
                        [&](int rank, Transport& transport) {
                          const absl::Status status = BroadcastOnce(transport);
                          if (rank == 2) {
                            EXPECT_EQ(gpus.fake().CallsOf("CommAbort"), 0);
                          }
                          return status;
                        }),
              Each(IsOk()));
}

TEST(NcclFailures, AnAbortThatDoesNotComeBackEndsTheProcess) {
  Ends ends;
  FakeGpus gpus([&](int, NcclOptions& options) {
    options.abort_timeout = absl::Milliseconds(100);
    options.end_process = [&](absl::string_view message) { ends.Add(message); };
  });
  gpus.MayLeak();
  gpus.fake().Inject({.function = "CommAbort", .device = 1, .fault = Fault::kHold});
  EXPECT_THAT(
      RunOnGpus(gpus, 2, [](int, Transport& transport) { return BroadcastOnce(transport); }),
      Each(IsOk()));
  EXPECT_THAT(ends.messages(),
              testing::ElementsAre(AllOf(HasSubstr("did not abort epoch 4 within 100ms"),
                                         HasSubstr("on w1 (rank 1), and GPU 1"))));
  gpus.fake().Release();
}

TEST(NcclFailuresDeathTest, TheProcessEndsWithTheMessageAndACodeOfItsOwn) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(EndProcess("GPU 3 hangs"), testing::ExitedWithCode(70), "GPU 3 hangs");
}

TEST(NcclFailures, ArenasStayReadableAfterAnError) {
  FakeGpus gpus;
  gpus.fake().Inject({.function = "Broadcast", .device = 0, .fault = Fault::kResult,
                      .result = ncclSystemError});
  const std::vector<absl::Status> statuses =
      RunOnGpus(gpus, 2, [](int rank, Transport& transport) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(const Arena arena,
                                  transport.Allocate(ArenaUse::kParameters, DType::kFloat32, 1000));
        std::ranges::fill(arena.floats(), 5.0f);
        const absl::Status status = BroadcastOnce(transport);
        EXPECT_TRUE(AllAre<float>(arena.floats(), 5.0f));
        return status;
      });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no rank is known to be gone")));
}

}  // namespace
}  // namespace lockstep
