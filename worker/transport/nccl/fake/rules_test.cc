// Each rule that NCCL and CUDA leave unchecked, broken once.
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/nccl/fake/fake_nccl.h"
#include "worker/transport/nccl/fake/test_rank.h"

namespace lockstep::fake_nccl {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Which collective each of two ranks puts on its stream; they must differ, and so never
// be done, until both abort.
void Disagree(FakeNccl& fake, const std::function<void(TestRank& rank, float* memory)>& call) {
  Together(2, [&](TestRank& rank) {
    float* memory = rank.Device(std::vector<float>(8, static_cast<float>(rank.rank)));
    call(rank, memory);
    EXPECT_EQ(rank.Poll(), ncclSuccess);
    EXPECT_FALSE(fake.AwaitIdle(absl::Milliseconds(20)));
    EXPECT_THAT(std::vector<float>(memory, memory + 8), Each(static_cast<float>(rank.rank)));
  });
}

TEST(Rules, RanksThatDisagreeAreNamedAndHangUntilTheyAbort) {
  struct Case {
    std::string name;
    std::function<void(TestRank& rank, float* memory)> call;
    std::string expected;  // of both
  };
  const Case cases[] = {
      {"collective",
       [](TestRank& rank, float* memory) {
         if (rank.rank == 0) {
           rank.api.Broadcast(memory, memory, 4, ncclFloat32, 0, rank.comm, rank.stream);
         } else {
           rank.api.AllGather(memory + 4, memory, 4, ncclFloat32, rank.comm, rank.stream);
         }
       },
       "AllGather of 4 float32"},
      {"count",
       [](TestRank& rank, float* memory) {
         rank.api.Broadcast(memory, memory, 4 + rank.rank, ncclFloat32, 0, rank.comm, rank.stream);
       },
       "Broadcast of 5 float32 from rank 0"},
      {"type",
       [](TestRank& rank, float* memory) {
         rank.api.Broadcast(memory, memory, 4, rank.rank == 0 ? ncclFloat32 : ncclInt32, 0,
                            rank.comm, rank.stream);
       },
       "Broadcast of 4 int32 from rank 0"},
      {"root",
       [](TestRank& rank, float* memory) {
         rank.api.Broadcast(memory, memory, 4, ncclFloat32, rank.rank, rank.comm, rank.stream);
       },
       "Broadcast of 4 float32 from rank 1"},
      {"what is in a group",
       [](TestRank& rank, float* memory) {
         EXPECT_EQ(rank.api.GroupStart(), ncclSuccess);
         for (int i = 0; i <= rank.rank; ++i) {
           rank.api.Broadcast(memory + 4 * i, memory + 4 * i, 4, ncclFloat32, 0, rank.comm,
                              rank.stream);
         }
         EXPECT_EQ(rank.api.GroupEnd(), ncclInProgress);
       },
       "(1 of 2 in its group)"},
      {"count of a transfer",
       [](TestRank& rank, float* memory) {
         if (rank.rank == 0) rank.api.Send(memory, 4, ncclFloat32, 1, rank.comm, rank.stream);
         if (rank.rank == 1) rank.api.Recv(memory, 5, ncclFloat32, 0, rank.comm, rank.stream);
       },
       "transfer of 5 float32 from rank 0 to rank 1"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    FakeNccl fake;
    Disagree(fake, each.call);
    EXPECT_THAT(fake.TakeViolations(),
                ElementsAre(AllOf(HasSubstr("makes "), HasSubstr(" where rank "),
                                  HasSubstr(each.expected))));
  }
}

TEST(Rules, OrderThatDiffersOnOneRankIsFound) {
  FakeNccl fake;
  Together(3, [&](TestRank& rank) {
    float* memory = rank.Device(std::vector<float>(8));
    for (int i = 0; i < 2; ++i) {
      const int count = (rank.rank == 1) == (i == 0) ? 2 : 3;
      rank.api.Broadcast(memory, memory, count, ncclFloat32, 0, rank.comm, rank.stream);
      EXPECT_EQ(rank.Poll(), ncclSuccess);
    }
    EXPECT_FALSE(fake.AwaitIdle(absl::Milliseconds(20)));
  });
  EXPECT_THAT(fake.TakeViolations(),
              testing::Contains(AllOf(HasSubstr("Broadcast of 2 float32 from rank 0"),
                                      HasSubstr("Broadcast of 3 float32 from rank 0"))));
}

// One rank alone, which is enough for most rules.
class OneRank : public testing::Test {
 protected:
  OneRank() {
    rank_.Start(NewId());
    EXPECT_EQ(rank_.Poll(), ncclSuccess);
    memory_ = rank_.Device(std::vector<float>(8));
  }
  ncclResult_t Broadcast(const void* send, void* receive, std::size_t count = 4) {
    return api_.Broadcast(send, receive, count, ncclFloat32, 0, rank_.comm, rank_.stream);
  }
  void ExpectViolation(const std::string& text) {
    EXPECT_THAT(fake_.TakeViolations(), ElementsAre(HasSubstr(text)));
  }

  FakeNccl fake_;
  const NcclApi api_ = FakeNccl::Api();
  TestRank rank_{0, 1};
  float* memory_ = nullptr;
};

TEST_F(OneRank, MustNotCallWhileACallIsInProgress) {
  EXPECT_EQ(Broadcast(memory_, memory_), ncclInProgress);
  EXPECT_EQ(Broadcast(memory_, memory_), ncclInvalidArgument);
  ExpectViolation("Broadcast while the call before is still in progress");
  EXPECT_EQ(rank_.Poll(), ncclSuccess);
  EXPECT_EQ(Broadcast(memory_, memory_), ncclInProgress);
}

TEST_F(OneRank, MustNotPutWorkOnAStreamThatAGroupMayNotHaveReached) {
  EXPECT_EQ(Broadcast(memory_, memory_), ncclInProgress);
  EXPECT_EQ(api_.EventRecord(rank_.event, rank_.stream), cudaSuccess);
  ExpectViolation("EventRecord on a stream that a group in progress may or may not have reached");
  EXPECT_EQ(rank_.Poll(), ncclSuccess);
  EXPECT_EQ(api_.EventRecord(rank_.event, rank_.stream), cudaSuccess);
  EXPECT_THAT(fake_.TakeViolations(), IsEmpty());
}

TEST_F(OneRank, MustNotUseACommunicatorAfterItsAbort) {
  EXPECT_EQ(api_.CommAbort(rank_.comm), ncclSuccess);
  EXPECT_THAT(fake_.TakeViolations(), IsEmpty());
  EXPECT_EQ(Broadcast(memory_, memory_), ncclInvalidArgument);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(api_.CommGetAsyncError(rank_.comm, &state), ncclInvalidArgument);
  EXPECT_EQ(api_.CommAbort(rank_.comm), ncclInvalidArgument);
  EXPECT_THAT(fake_.TakeViolations(),
              ElementsAre("GPU 0: Broadcast on a communicator that was aborted",
                          "GPU 0: CommGetAsyncError on a communicator that was aborted",
                          "GPU 0: CommAbort on a communicator that was aborted"));
}

TEST_F(OneRank, MustNotUseACommunicatorThatHasReportedAnError) {
  fake_.Inject({.function = "CommGetAsyncError",
                .call = fake_.CallsOf("CommGetAsyncError"),
                .fault = FakeNccl::Fault::kAsyncError,
                .result = ncclRemoteError});
  EXPECT_EQ(rank_.Poll(), ncclRemoteError);
  EXPECT_EQ(Broadcast(memory_, memory_), ncclRemoteError);
  ExpectViolation("Broadcast on a communicator that has reported an error");
  EXPECT_EQ(api_.CommAbort(rank_.comm), ncclSuccess);
  EXPECT_THAT(fake_.TakeViolations(), IsEmpty());
}

TEST_F(OneRank, MustNotBeUsedByTwoThreadsAtOnce) {
  fake_.Inject({.function = "Broadcast", .fault = FakeNccl::Fault::kHold});
  std::thread other([&] { EXPECT_EQ(Broadcast(memory_, memory_), ncclInProgress); });
  EXPECT_TRUE(fake_.AwaitHeld(1, kPatience));
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(api_.CommGetAsyncError(rank_.comm, &state), ncclSuccess);
  fake_.Release();
  other.join();
  ExpectViolation("CommGetAsyncError while another thread is inside of a call on the communicator");
}

TEST_F(OneRank, MayNestGroupsAndStartsThemFirst) {
  EXPECT_EQ(api_.GroupEnd(), ncclInvalidUsage);
  ExpectViolation("GroupEnd without GroupStart");
  EXPECT_EQ(api_.GroupStart(), ncclSuccess);
  EXPECT_EQ(api_.GroupStart(), ncclSuccess);
  EXPECT_EQ(Broadcast(memory_, memory_), ncclSuccess);
  EXPECT_EQ(api_.GroupEnd(), ncclSuccess);
  EXPECT_EQ(Broadcast(memory_ + 4, memory_ + 4), ncclSuccess);  // nothing is in progress yet
  EXPECT_EQ(api_.GroupEnd(), ncclInProgress);
  EXPECT_EQ(rank_.Poll(), ncclSuccess);
  EXPECT_THAT(fake_.TakeViolations(), IsEmpty());
}

TEST_F(OneRank, MustNotMixMakingAndUsingOfCommunicatorsInAGroup) {
  const ncclUniqueId id = NewId();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t second = nullptr;
  EXPECT_EQ(api_.GroupStart(), ncclSuccess);
  EXPECT_EQ(api_.CommInitRankConfig(&second, 1, id, 0, &config), ncclSuccess);
  EXPECT_EQ(Broadcast(memory_, memory_), ncclSuccess);
  EXPECT_EQ(api_.GroupEnd(), ncclInvalidUsage);
  ExpectViolation("a group of more than one of: making communicators, using, and aborting them");
  EXPECT_EQ(Broadcast(memory_, memory_), ncclInProgress);  // nothing of the group was done
}

TEST_F(OneRank, LosesAGroupInWhichACallFails) {
  EXPECT_EQ(api_.GroupStart(), ncclSuccess);
  EXPECT_EQ(Broadcast(memory_, memory_), ncclSuccess);
  EXPECT_EQ(api_.Broadcast(memory_, memory_, 4, ncclFloat32, 7, rank_.comm, rank_.stream),
            ncclInvalidArgument);
  ExpectViolation("rank 7 is not one of 1");
  EXPECT_EQ(api_.GroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(Broadcast(memory_, memory_), ncclInProgress);
}

TEST_F(OneRank, MustUseBuffersOfItsOwnGpuAndTheirLength) {
  std::vector<float> plain(8);
  EXPECT_EQ(Broadcast(plain.data(), memory_), ncclInvalidArgument);
  ExpectViolation("Broadcast of 4 float32 from rank 0: memory that was freed or that no GPU can");
  EXPECT_EQ(Broadcast(memory_, memory_, 9), ncclInvalidArgument);
  ExpectViolation("36 bytes from byte 0 of an allocation of 32 bytes");
  EXPECT_EQ(Broadcast(memory_ + 6, memory_ + 6), ncclInvalidArgument);
  ExpectViolation("16 bytes from byte 24 of an allocation of 32 bytes");

  void* elsewhere = nullptr;
  EXPECT_EQ(api_.SetDevice(3), cudaSuccess);
  EXPECT_EQ(api_.Malloc(&elsewhere, 32), cudaSuccess);
  EXPECT_EQ(Broadcast(elsewhere, elsewhere), ncclInvalidArgument);
  ExpectViolation("memory of GPU 3");
  EXPECT_EQ(api_.Free(elsewhere), cudaSuccess);
  EXPECT_EQ(Broadcast(elsewhere, elsewhere), ncclInvalidArgument);
  ExpectViolation("memory that was freed or that no GPU can reach");

  void* pinned = nullptr;
  EXPECT_EQ(api_.HostAlloc(&pinned, 32, cudaHostAllocDefault), cudaSuccess);
  EXPECT_EQ(Broadcast(pinned, memory_), ncclInProgress);
  EXPECT_THAT(fake_.TakeViolations(), IsEmpty());
}

TEST_F(OneRank, MustNotFreeWhatACallInProgressUses) {
  void* memory = nullptr;
  EXPECT_EQ(api_.Malloc(&memory, 16), cudaSuccess);
  EXPECT_EQ(Broadcast(memory, memory), ncclInProgress);
  EXPECT_EQ(api_.Free(memory), cudaSuccess);
  EXPECT_EQ(rank_.Poll(), ncclSuccess);
  EXPECT_FALSE(fake_.AwaitIdle(absl::Milliseconds(20)));
  ExpectViolation("Broadcast of 4 float32 from rank 0 runs on memory that was freed");
}

TEST_F(OneRank, MustUseAStreamOfItsOwnGpu) {
  cudaStream_t elsewhere = nullptr;
  EXPECT_EQ(api_.SetDevice(3), cudaSuccess);
  EXPECT_EQ(api_.StreamCreateWithFlags(&elsewhere, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(api_.Broadcast(memory_, memory_, 4, ncclFloat32, 0, rank_.comm, elsewhere),
            ncclInvalidArgument);
  ExpectViolation("the stream is one of GPU 3");
  EXPECT_EQ(api_.StreamDestroy(elsewhere), cudaSuccess);
  EXPECT_EQ(api_.Broadcast(memory_, memory_, 4, ncclFloat32, 0, rank_.comm, elsewhere),
            ncclInvalidArgument);
  ExpectViolation("the stream does not exist any more");
}

TEST_F(OneRank, MustNotOverlapBuffersOtherThanInPlace) {
  EXPECT_EQ(Broadcast(memory_, memory_ + 1), ncclInvalidArgument);
  ExpectViolation("16 bytes that are read overlap with 16 bytes that are written");
  EXPECT_EQ(api_.GroupStart(), ncclSuccess);
  EXPECT_EQ(api_.Send(memory_, 4, ncclFloat32, 0, rank_.comm, rank_.stream), ncclSuccess);
  EXPECT_EQ(api_.Recv(memory_ + 3, 4, ncclFloat32, 0, rank_.comm, rank_.stream), ncclSuccess);
  EXPECT_EQ(api_.GroupEnd(), ncclInvalidUsage);
  ExpectViolation("in one group: 16 bytes that are read overlap with 16 bytes that are written");
}

TEST_F(OneRank, MustRegisterMemoryOfNcclAndFreeItAfterTheAbort) {
  void* handle = nullptr;
  EXPECT_EQ(api_.CommRegister(rank_.comm, memory_, 32, &handle), ncclInvalidUsage);
  ExpectViolation("CommRegister of memory that is not from MemAlloc");
  void* memory = nullptr;
  EXPECT_EQ(api_.MemAlloc(&memory, 32), ncclSuccess);
  EXPECT_EQ(api_.CommRegister(rank_.comm, memory, 32, &handle), ncclSuccess);
  EXPECT_EQ(api_.MemFree(memory), ncclInvalidArgument);
  ExpectViolation("MemFree of memory that a communicator has registered");
  EXPECT_EQ(api_.CommAbort(rank_.comm), ncclSuccess);
  EXPECT_EQ(api_.MemFree(memory), ncclSuccess);
  EXPECT_THAT(fake_.TakeViolations(), IsEmpty());
}

TEST(Rules, CommunicatorsAreFormedAsAgreed) {
  FakeNccl fake;
  const NcclApi api = FakeNccl::Api();
  const ncclUniqueId id = NewId();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(api.CommInitRankConfig(&comm, 2, id, 0, &config), ncclInvalidUsage);
  EXPECT_THAT(fake.TakeViolations(), ElementsAre(HasSubstr("blocking is not 0")));
  config.blocking = 0;
  EXPECT_EQ(api.CommInitRankConfig(&comm, 2, ncclUniqueId{}, 0, &config), ncclInvalidArgument);
  EXPECT_THAT(fake.TakeViolations(), ElementsAre(HasSubstr("the id is none of GetUniqueId")));
  EXPECT_EQ(api.CommInitRankConfig(&comm, 2, id, 2, &config), ncclInvalidArgument);
  EXPECT_THAT(fake.TakeViolations(), ElementsAre(HasSubstr("rank 2 of 2")));
  EXPECT_EQ(api.CommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  ncclComm_t other = nullptr;
  EXPECT_EQ(api.CommInitRankConfig(&other, 2, id, 0, &config), ncclInvalidUsage);
  EXPECT_THAT(fake.TakeViolations(), ElementsAre(HasSubstr("the id was used before by rank 0")));
  EXPECT_EQ(api.CommInitRankConfig(&other, 3, id, 1, &config), ncclInvalidUsage);
  EXPECT_THAT(fake.TakeViolations(), ElementsAre(HasSubstr("another rank said 2")));
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(api.CommGetAsyncError(comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInvalidUsage);
}

TEST(Rules, SeveralRanksOnOneGpuAreRefused) {
  FakeNccl fake;
  const ncclUniqueId id = NewId();
  OnThreads(2, [&](int number) {
    TestRank rank(number, 2);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(rank.api.SetDevice(1), cudaSuccess);
    EXPECT_EQ(rank.api.CommInitRankConfig(&rank.comm, 2, id, number, &config), ncclInProgress);
    EXPECT_EQ(rank.Poll(), ncclInvalidUsage);
    EXPECT_THAT(rank.api.GetLastError(rank.comm), HasSubstr("several ranks use GPU 1"));
    EXPECT_EQ(rank.api.CommAbort(rank.comm), ncclSuccess);
  });
  EXPECT_THAT(fake.TakeViolations(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::fake_nccl
