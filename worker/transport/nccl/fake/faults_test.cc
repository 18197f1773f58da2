// What tests inject, ranks that do not come, aborts, and the end of a FakeNccl while
// threads wait inside of it.
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/nccl/fake/fake_nccl.h"
#include "worker/transport/nccl/fake/test_rank.h"

namespace lockstep::fake_nccl {
namespace {

using testing::Contains;
using testing::Each;
using testing::IsEmpty;
using testing::Not;

using Fault = FakeNccl::Fault;

TEST(Faults, AResultIsReturnedByOneCallOfOneDeviceAndNothingIsDone) {
  FakeNccl fake;
  const NcclApi api = FakeNccl::Api();
  fake.Inject({.function = "Malloc", .call = 1, .device = 1, .result = cudaErrorMemoryAllocation});
  for (const int device : {0, 1}) {
    EXPECT_EQ(api.SetDevice(device), cudaSuccess);
    for (int call = 0; call < 3; ++call) {
      void* memory = nullptr;
      const bool fails = device == 1 && call == 1;
      EXPECT_EQ(api.Malloc(&memory, 8), fails ? cudaErrorMemoryAllocation : cudaSuccess);
      EXPECT_EQ(memory == nullptr, fails);
    }
  }
  EXPECT_EQ(api.GetLastCudaError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(fake.CallsOf("Malloc"), 6);
  EXPECT_EQ(fake.CallsOf("Malloc", 1), 3);
  EXPECT_EQ(fake.Leaks().size(), 5);
}

TEST(Faults, CallsOnAllDevicesAreCountedTogetherWhereNoneIsNamed) {
  FakeNccl fake;
  const NcclApi api = FakeNccl::Api();
  fake.Inject({.function = "HostAlloc", .call = 1, .result = cudaErrorMemoryAllocation});
  void* memory = nullptr;
  EXPECT_EQ(api.HostAlloc(&memory, 8, 0), cudaSuccess);
  EXPECT_EQ(api.SetDevice(1), cudaSuccess);
  EXPECT_EQ(api.HostAlloc(&memory, 8, 0), cudaErrorMemoryAllocation);
  EXPECT_EQ(api.HostAlloc(&memory, 8, 0), cudaSuccess);
}

TEST(Faults, EachFunctionOfTheTableCanFail) {
  for (const std::string& function : FakeNccl::EntryPoints()) {
    SCOPED_TRACE(function);
    FakeNccl fake;
    fake.Inject({.function = function, .result = 1});
    const NcclApi api = FakeNccl::Api();
    TestRank rank(0, 1);
    void* memory = nullptr;
    int number = 0;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t state;
    cudaPointerAttributes attributes;
    // All functions once; what fails leads to more errors, of which none is the first.
    const int results[] = {
        api.GetVersion(&number),
        api.RuntimeGetVersion(&number),
        api.DriverGetVersion(&number),
        api.GetDeviceCount(&number),
        api.SetDevice(0),
        api.GetUniqueId(&id),
        api.CommInitRankConfig(&rank.comm, 1, id, 0, &config),
        api.CommGetAsyncError(rank.comm, &state),
        api.MemAlloc(&memory, 8),
        api.CommRegister(rank.comm, memory, 8, &memory),
        api.MemFree(memory),
        api.MallocManaged(&memory, 8, cudaMemAttachGlobal),
        api.Free(memory),
        api.HostAlloc(&memory, 8, 0),
        api.FreeHost(memory),
        api.Malloc(&memory, 8),
        api.PointerGetAttributes(&attributes, memory),
        api.StreamCreateWithFlags(&rank.stream, 0),
        api.EventCreateWithFlags(&rank.event, 0),
        api.EventRecord(rank.event, rank.stream),
        api.StreamWaitEvent(rank.stream, rank.event, 0),
        api.EventQuery(rank.event),
        api.EventDestroy(rank.event),
        api.MemcpyAsync(memory, memory, 8, cudaMemcpyDefault, rank.stream),
        api.MemsetAsync(memory, 0, 8, rank.stream),
        api.GroupStart(),
        api.Broadcast(memory, memory, 8, ncclInt8, 0, rank.comm, rank.stream),
        api.AllGather(memory, memory, 8, ncclInt8, rank.comm, rank.stream),
        api.Send(memory, 8, ncclInt8, 0, rank.comm, rank.stream),
        api.Recv(memory, 8, ncclInt8, 0, rank.comm, rank.stream),
        api.GroupEnd(),
        api.CommAbort(rank.comm),
        api.StreamDestroy(rank.stream),
        api.GetLastCudaError(),
    };
    EXPECT_THAT(results, Contains(1));
    EXPECT_EQ(fake.CallsOf(function), 1);
  }
}

TEST(Faults, AnAsynchronousErrorIsReportedFromItsCallOnByOneRank) {
  FakeNccl fake({.polls = 0});
  Together(2, [&](TestRank& rank) {
    if (rank.rank == 0) return;
    const int next = fake.CallsOf("CommGetAsyncError", 1);
    fake.Inject({.function = "CommGetAsyncError",
                 .call = next + 1,
                 .device = 1,
                 .fault = Fault::kAsyncError,
                 .result = ncclRemoteError});
    ncclResult_t state = ncclInProgress;
    for (const ncclResult_t expected : {ncclSuccess, ncclRemoteError, ncclRemoteError}) {
      EXPECT_EQ(rank.api.CommGetAsyncError(rank.comm, &state), ncclSuccess);
      EXPECT_EQ(state, expected);
    }
  });
  EXPECT_THAT(fake.TakeViolations(), IsEmpty());
}

TEST(Faults, AnErrorOfGroupEndEndsTheGroup) {
  FakeNccl fake;
  fake.Inject({.function = "GroupEnd", .result = ncclSystemError});
  Together(1, [&](TestRank& rank) {
    float* memory = rank.Device(std::vector<float>(4));
    EXPECT_EQ(rank.api.GroupStart(), ncclSuccess);
    rank.api.Broadcast(memory, memory, 4, ncclFloat32, 0, rank.comm, rank.stream);
    EXPECT_EQ(rank.api.GroupEnd(), ncclSystemError);
    EXPECT_EQ(rank.api.Broadcast(memory, memory, 4, ncclFloat32, 0, rank.comm, rank.stream),
              ncclInProgress);
  });
  EXPECT_THAT(fake.TakeViolations(), IsEmpty());
}

TEST(Faults, ADelayedCallIsLateAndThenAsAlways) {
  FakeNccl fake;
  const NcclApi api = FakeNccl::Api();
  fake.Inject(
      {.function = "GetVersion", .fault = Fault::kDelay, .delay = absl::Milliseconds(30)});
  const absl::Time start = absl::Now();
  int version = 0;
  EXPECT_EQ(api.GetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(29));
}

TEST(Faults, AHeldCallStartsWhenItIsReleased) {
  FakeNccl fake;
  Together(1, [&](TestRank& rank) {
    fake.Inject({.function = "CommAbort", .fault = Fault::kHold});
    bool released = false;
    std::thread other([&] {
      EXPECT_TRUE(fake.AwaitHeld(1, kPatience));
      EXPECT_THAT(fake.Leaks(), Contains("GPU 0: the communicator of rank 0"));
      released = true;
      fake.Release();
    });
    rank.Abort();
    EXPECT_TRUE(released);
    other.join();
  });
  EXPECT_THAT(fake.Leaks(), IsEmpty());
}

TEST(Faults, ARankThatIsNotThereIsAwaitedUntilTheOthersAbort) {
  FakeNccl fake;
  const ncclUniqueId id = NewId();
  TestRank rank(0, 2);
  rank.Start(id);
  ncclResult_t state = ncclSuccess;
  for (int poll = 0; poll < 10; ++poll) {
    EXPECT_EQ(rank.api.CommGetAsyncError(rank.comm, &state), ncclSuccess);
    EXPECT_EQ(state, ncclInProgress);
  }
  rank.Stop();
  OnThreads(1, [&](int) {
    TestRank late(1, 2);
    late.Start(id);
    for (int poll = 0; poll < 10; ++poll) {
      EXPECT_EQ(late.api.CommGetAsyncError(late.comm, &state), ncclSuccess);
      EXPECT_EQ(state, ncclInProgress);
    }
    late.Stop();
  });
  EXPECT_THAT(fake.TakeViolations(), IsEmpty());
  EXPECT_THAT(fake.Leaks(), IsEmpty());
}

TEST(Faults, TheFirstCollectivesAreInProgressUntilAllRanksHaveCome) {
  FakeNccl fake({.polls = 0});
  Together(2, [&](TestRank& rank) {
    if (rank.rank == 1) return;
    float* memory = rank.Device(std::vector<float>(4));
    rank.api.Broadcast(memory, memory, 4, ncclFloat32, 0, rank.comm, rank.stream);
    ncclResult_t state = ncclSuccess;
    for (int poll = 0; poll < 10; ++poll) {
      EXPECT_EQ(rank.api.CommGetAsyncError(rank.comm, &state), ncclSuccess);
      EXPECT_EQ(state, ncclInProgress);
    }
    EXPECT_TRUE(fake.AwaitIdle(kPatience));  // nothing is on the stream
  });
}

TEST(Faults, AnAbortFreesTheRanksOwnStreamAndPeersWaitForEver) {
  FakeNccl fake;
  std::promise<void> first_is_free;
  Together(2, [&](TestRank& rank) {
    float* memory = rank.Device(std::vector<float>(4, static_cast<float>(rank.rank)));
    const auto broadcast = [&] {
      rank.api.Broadcast(memory, memory, 4, ncclFloat32, 0, rank.comm, rank.stream);
      EXPECT_EQ(rank.Poll(), ncclSuccess);
    };
    broadcast();
    rank.Finish();
    if (rank.rank == 0) {
      broadcast();
      EXPECT_FALSE(fake.AwaitIdle(absl::Milliseconds(20)));
      rank.Abort();
      EXPECT_EQ(rank.api.MemsetAsync(memory, 0xff, 16, rank.stream), cudaSuccess);
      rank.Finish();
      first_is_free.set_value();
    } else {
      first_is_free.get_future().wait();
      broadcast();
      EXPECT_FALSE(fake.AwaitIdle(absl::Milliseconds(20)));
      EXPECT_THAT(std::vector<float>(memory, memory + 4), Each(0));
      rank.Abort();
      rank.Finish();
    }
  });
  EXPECT_THAT(fake.TakeViolations(), IsEmpty());
}

TEST(Faults, AnAbortDropsAGroupThatIsInProgress) {
  FakeNccl fake;
  Together(1, [&](TestRank& rank) {
    float* memory = rank.Device(std::vector<float>(8, 1));
    rank.api.AllGather(memory, memory + 4, 4, ncclFloat32, rank.comm, rank.stream);
    rank.Abort();
    rank.Finish();  // nothing is in progress on the stream
    EXPECT_THAT(std::vector<float>(memory, memory + 8), Each(1));
  });
  EXPECT_THAT(fake.TakeViolations(), IsEmpty());
}

TEST(Faults, AbortsInAGroupHappenAtItsEnd) {
  FakeNccl fake;
  Together(1, [&](TestRank& rank) {
    EXPECT_EQ(rank.api.GroupStart(), ncclSuccess);
    rank.Abort();
    EXPECT_THAT(fake.Leaks(), Contains("GPU 0: the communicator of rank 0"));
    EXPECT_EQ(rank.api.GroupEnd(), ncclSuccess);
    EXPECT_THAT(fake.Leaks(), Not(Contains("GPU 0: the communicator of rank 0")));
  });
  EXPECT_THAT(fake.TakeViolations(), IsEmpty());
}

TEST(Faults, TheEndOfAFakeEndsAllWaitsInsideOfIt) {
  const NcclApi api = FakeNccl::Api();
  std::thread held;
  std::thread freeing;
  {
    FakeNccl fake({.connects_at_first_use = false});
    fake.Inject({.function = "GetVersion", .fault = Fault::kHold});
    held = std::thread([&] {
      int version = 0;
      EXPECT_EQ(api.GetVersion(&version), ncclInternalError);
      EXPECT_EQ(version, 0);
    });
    // Rank 0 receives what rank 1 does not send.
    const ncclUniqueId id = NewId();
    OnThreads(2, [&](int number) {
      TestRank rank(number, 2);
      rank.Start(id);
      EXPECT_EQ(rank.Poll(), ncclSuccess);
      if (number == 1) return;
      void* memory = rank.Device(std::vector<int>(1));
      EXPECT_EQ(api.Recv(memory, 1, ncclInt32, 1, rank.comm, rank.stream), ncclInProgress);
      EXPECT_EQ(rank.Poll(), ncclSuccess);
      freeing = std::thread([&api, memory] {
        EXPECT_EQ(api.Free(memory), cudaErrorInitializationError);
      });
    });
    EXPECT_TRUE(fake.AwaitHeld(1, kPatience));
    EXPECT_TRUE(Eventually([&] { return fake.CallsOf("Free") == 1; }));
  }
  held.join();
  freeing.join();
  int version = 0;
  EXPECT_EQ(api.GetVersion(&version), ncclInternalError);
}

TEST(Faults, EachFakeStartsAnew) {
  const NcclApi api = FakeNccl::Api();
  ncclUniqueId old;
  {
    FakeNccl fake;
    EXPECT_EQ(api.SetDevice(3), cudaSuccess);
    EXPECT_EQ(api.GroupStart(), ncclSuccess);
    EXPECT_EQ(api.GetUniqueId(&old), ncclSuccess);
  }
  FakeNccl fake;
  EXPECT_EQ(fake.CallsOf("GroupStart"), 0);
  EXPECT_EQ(api.GroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(fake.TakeViolations(), testing::ElementsAre("GPU 0: GroupEnd without GroupStart"));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(api.CommInitRankConfig(&comm, 1, old, 0, &config), ncclInvalidArgument);
}

}  // namespace
}  // namespace lockstep::fake_nccl
