// Memory, streams and events of the fake.
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/nccl/fake/fake_nccl.h"
#include "worker/transport/nccl/fake/test_rank.h"

namespace lockstep::fake_nccl {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Cuda : public testing::Test {
 protected:
  Cuda() {
    EXPECT_EQ(api_.SetDevice(1), cudaSuccess);
    EXPECT_EQ(api_.StreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(api_.StreamCreateWithFlags(&blocked_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(api_.EventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(api_.Malloc(&memory_, 16), cudaSuccess);
    EXPECT_EQ(api_.HostAlloc(&pinned_, 16, cudaHostAllocDefault), cudaSuccess);
  }
  // Puts work on blocked_ that ends when the returned communicator is aborted: a Recv of
  // what nobody sends.
  ncclComm_t Block() {
    const ncclUniqueId id = NewId();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    TestRank rank(0, 2);
    EXPECT_EQ(api_.CommInitRankConfig(&rank.comm, 2, id, 0, &config), ncclInProgress);
    OnThreads(1, [&](int) {
      ncclComm_t peer = nullptr;
      EXPECT_EQ(api_.CommInitRankConfig(&peer, 2, id, 1, &config), ncclInProgress);
    });
    EXPECT_EQ(rank.Poll(), ncclSuccess);
    EXPECT_EQ(api_.Recv(memory_, 1, ncclInt8, 1, rank.comm, blocked_), ncclInProgress);
    EXPECT_EQ(rank.Poll(), ncclSuccess);
    return rank.comm;
  }
  void ExpectViolation(const std::string& text) {
    EXPECT_THAT(fake_.TakeViolations(), ElementsAre(HasSubstr(text)));
  }

  FakeNccl fake_{{.connects_at_first_use = false}};
  const NcclApi api_ = FakeNccl::Api();
  cudaStream_t stream_ = nullptr;
  cudaStream_t blocked_ = nullptr;
  cudaEvent_t event_ = nullptr;
  void* memory_ = nullptr;
  void* pinned_ = nullptr;
};

TEST_F(Cuda, KindsOfMemoryAreToldApart) {
  void* managed = nullptr;
  ASSERT_EQ(api_.MallocManaged(&managed, 16, cudaMemAttachGlobal), cudaSuccess);
  void* of_nccl = nullptr;
  ASSERT_EQ(api_.MemAlloc(&of_nccl, 16), ncclSuccess);
  int plain = 0;
  const std::pair<const void*, cudaMemoryType> expected[] = {
      {memory_, cudaMemoryTypeDevice},  {static_cast<char*>(memory_) + 15, cudaMemoryTypeDevice},
      {of_nccl, cudaMemoryTypeDevice},  {managed, cudaMemoryTypeManaged},
      {pinned_, cudaMemoryTypeHost},    {&plain, cudaMemoryTypeUnregistered},
      {static_cast<char*>(memory_) + 16, cudaMemoryTypeUnregistered}};
  for (const auto& [pointer, type] : expected) {
    cudaPointerAttributes attributes;
    EXPECT_EQ(api_.PointerGetAttributes(&attributes, pointer), cudaSuccess);
    EXPECT_EQ(attributes.type, type);
    EXPECT_EQ(attributes.device, type == cudaMemoryTypeUnregistered ? cudaInvalidDeviceId : 1);
    EXPECT_EQ(attributes.devicePointer, type == cudaMemoryTypeUnregistered ? nullptr : pointer);
    EXPECT_EQ(attributes.hostPointer, type == cudaMemoryTypeDevice ? nullptr : pointer);
  }
}

TEST_F(Cuda, CopiesAndFillsHappenInTheOrderOfTheStream) {
  EXPECT_EQ(api_.MemsetAsync(pinned_, 5, 16, stream_), cudaSuccess);
  EXPECT_EQ(api_.MemcpyAsync(memory_, pinned_, 16, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  EXPECT_EQ(api_.MemsetAsync(pinned_, 6, 16, stream_), cudaSuccess);
  EXPECT_EQ(api_.MemcpyAsync(static_cast<char*>(pinned_) + 8, memory_, 8, cudaMemcpyDefault,
                             stream_),
            cudaSuccess);
  EXPECT_TRUE(fake_.AwaitIdle(kPatience));
  EXPECT_EQ(static_cast<char*>(pinned_)[7], 6);
  EXPECT_EQ(static_cast<char*>(pinned_)[8], 5);
  EXPECT_THAT(fake_.TakeViolations(), IsEmpty());
}

TEST_F(Cuda, AnEventIsReachedAfterTheWorkBeforeItAndOrdersOtherStreams) {
  EXPECT_EQ(api_.EventQuery(event_), cudaSuccess);  // never recorded
  const ncclComm_t comm = Block();
  EXPECT_EQ(api_.EventRecord(event_, blocked_), cudaSuccess);
  EXPECT_EQ(api_.EventQuery(event_), cudaErrorNotReady);
  EXPECT_EQ(api_.GetLastCudaError(), cudaErrorNotReady);
  EXPECT_EQ(api_.GetLastCudaError(), cudaSuccess);

  EXPECT_EQ(api_.MemsetAsync(pinned_, 1, 16, stream_), cudaSuccess);
  EXPECT_EQ(api_.StreamWaitEvent(stream_, event_, 0), cudaSuccess);
  EXPECT_EQ(api_.MemsetAsync(pinned_, 2, 16, stream_), cudaSuccess);
  cudaEvent_t after = nullptr;
  EXPECT_EQ(api_.EventCreateWithFlags(&after, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(api_.EventRecord(after, stream_), cudaSuccess);
  EXPECT_EQ(api_.EventQuery(after), cudaErrorNotReady);

  EXPECT_EQ(api_.CommAbort(comm), ncclSuccess);
  EXPECT_TRUE(Eventually([&] { return api_.EventQuery(after) == cudaSuccess; }));
  EXPECT_EQ(api_.EventQuery(event_), cudaSuccess);
  EXPECT_EQ(static_cast<char*>(pinned_)[0], 2);
}

TEST_F(Cuda, FreeWaitsForTheWorkOfItsGpu) {
  const ncclComm_t comm = Block();
  const std::string leak = "GPU 1: 16 bytes of Malloc";
  std::thread other([&] {
    EXPECT_TRUE(Eventually([&] { return fake_.CallsOf("Free") == 1; }));
    EXPECT_THAT(fake_.Leaks(), Contains(leak));
    EXPECT_EQ(api_.CommAbort(comm), ncclSuccess);
  });
  EXPECT_EQ(api_.Free(memory_), cudaSuccess);
  EXPECT_THAT(fake_.Leaks(), testing::Not(Contains(leak)));
  other.join();
}

TEST_F(Cuda, AStreamThatIsDestroyedStillDoesItsWork) {
  EXPECT_EQ(api_.MemsetAsync(pinned_, 9, 16, stream_), cudaSuccess);
  EXPECT_EQ(api_.StreamDestroy(stream_), cudaSuccess);
  EXPECT_TRUE(fake_.AwaitIdle(kPatience));
  EXPECT_EQ(static_cast<char*>(pinned_)[15], 9);
  EXPECT_EQ(api_.MemsetAsync(pinned_, 9, 16, stream_), cudaErrorInvalidResourceHandle);
  ExpectViolation("MemsetAsync on a stream that does not exist any more");
}

TEST_F(Cuda, MisuseIsNamed) {
  int plain[4] = {};
  EXPECT_EQ(api_.MemcpyAsync(memory_, plain, 16, cudaMemcpyHostToDevice, stream_),
            cudaErrorInvalidValue);
  ExpectViolation("MemcpyAsync touches memory that was freed or that no GPU can reach");
  EXPECT_EQ(api_.MemcpyAsync(memory_, pinned_, 17, cudaMemcpyHostToDevice, stream_),
            cudaErrorInvalidValue);
  ExpectViolation("17 bytes from byte 0 of an allocation of 16 bytes");
  EXPECT_EQ(api_.MemcpyAsync(memory_, pinned_, 16, cudaMemcpyDeviceToHost, stream_),
            cudaErrorInvalidMemcpyDirection);
  ExpectViolation("MemcpyAsync of kind 2 where the pointers are of kind 1");
  EXPECT_EQ(api_.Free(pinned_), cudaErrorInvalidValue);
  ExpectViolation("Free of what it did not allocate, or twice");
  EXPECT_EQ(api_.FreeHost(pinned_), cudaSuccess);
  EXPECT_EQ(api_.FreeHost(pinned_), cudaErrorInvalidValue);
  ExpectViolation("FreeHost of what it did not allocate, or twice");
  EXPECT_EQ(api_.MemFree(memory_), ncclInvalidArgument);
  ExpectViolation("MemFree of what it did not allocate");
  EXPECT_EQ(api_.SetDevice(8), cudaErrorInvalidDevice);
  ExpectViolation("there are 8 GPUs");
  EXPECT_EQ(api_.EventDestroy(event_), cudaSuccess);
  EXPECT_EQ(api_.EventQuery(event_), cudaErrorInvalidResourceHandle);
  ExpectViolation("EventQuery of an event that does not exist any more");
}

TEST_F(Cuda, AnEventOfAnotherGpuCannotBeRecorded) {
  EXPECT_EQ(api_.SetDevice(2), cudaSuccess);
  cudaEvent_t elsewhere = nullptr;
  EXPECT_EQ(api_.EventCreateWithFlags(&elsewhere, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(api_.EventRecord(elsewhere, stream_), cudaErrorInvalidResourceHandle);
  ExpectViolation("GPU 1: EventRecord of an event of GPU 2");
}

TEST_F(Cuda, LeaksAreListed) {
  EXPECT_EQ(api_.FreeHost(pinned_), cudaSuccess);
  EXPECT_EQ(api_.StreamDestroy(blocked_), cudaSuccess);
  EXPECT_THAT(fake_.Leaks(), ElementsAre("GPU 1: 16 bytes of Malloc", "GPU 1: a stream",
                                         "GPU 1: an event"));
  EXPECT_EQ(api_.Free(memory_), cudaSuccess);
  EXPECT_EQ(api_.StreamDestroy(stream_), cudaSuccess);
  EXPECT_EQ(api_.EventDestroy(event_), cudaSuccess);
  EXPECT_THAT(fake_.Leaks(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::fake_nccl
