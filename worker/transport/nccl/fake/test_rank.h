// One rank of the fake's own tests: a communicator, a stream and an event, used as NCCL
// says they have to be. Each rank is a thread.
//
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_TEST_RANK_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_TEST_RANK_H_

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker/transport/nccl/fake/fake_nccl.h"

namespace lockstep::fake_nccl {

// A test that waits that long has failed.
inline constexpr absl::Duration kPatience = absl::Seconds(30);

// Asks again and again; whether it came true.
inline bool Eventually(const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

class TestRank {
 public:
  TestRank(int rank, int ranks) : rank(rank), ranks(ranks) {}

  // Each in turn, on the rank's own thread and GPU.
  void Start(const ncclUniqueId& id) {
    EXPECT_EQ(api.SetDevice(rank), cudaSuccess);
    EXPECT_EQ(api.StreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(api.EventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(api.CommInitRankConfig(&comm, ranks, id, rank, &config), ncclInProgress);
  }

  // What the communicator says once nothing is in progress.
  ncclResult_t Poll() const {
    ncclResult_t state = ncclInProgress;
    EXPECT_TRUE(Eventually([&] {
      return api.CommGetAsyncError(comm, &state) != ncclSuccess || state != ncclInProgress;
    }));
    return state;
  }

  // Waits until the stream has done all that was put on it.
  void Finish() const {
    EXPECT_EQ(api.EventRecord(event, stream), cudaSuccess);
    EXPECT_TRUE(Eventually([&] { return api.EventQuery(event) == cudaSuccess; }));
  }

  // Memory of the rank's GPU with the elements; freed by Stop().
  template <typename T>
  T* Device(const std::vector<T>& elements) {
    void* memory = nullptr;
    EXPECT_EQ(api.MallocManaged(&memory, elements.size() * sizeof(T), cudaMemAttachGlobal),
              cudaSuccess);
    std::copy(elements.begin(), elements.end(), static_cast<T*>(memory));
    memories.push_back(memory);
    return static_cast<T*>(memory);
  }

  void Abort() { EXPECT_EQ(api.CommAbort(std::exchange(comm, nullptr)), ncclSuccess); }

  void Stop() {
    if (comm != nullptr) Abort();
    for (void* memory : memories) EXPECT_EQ(api.Free(memory), cudaSuccess);
    EXPECT_EQ(api.EventDestroy(event), cudaSuccess);
    EXPECT_EQ(api.StreamDestroy(stream), cudaSuccess);
  }

  const NcclApi api = FakeNccl::Api();
  const int rank;
  const int ranks;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ncclComm_t comm = nullptr;
  std::vector<void*> memories;
};

// Runs `body` on a thread per rank.
inline void OnThreads(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

inline ncclUniqueId NewId() {
  ncclUniqueId id;
  EXPECT_EQ(FakeNccl::Api().GetUniqueId(&id), ncclSuccess);
  return id;
}

// Forms a communicator of `ranks` threads, and lets `body` use it.
inline void Together(int ranks, const std::function<void(TestRank& rank)>& body) {
  const ncclUniqueId id = NewId();
  OnThreads(ranks, [&](int number) {
    TestRank rank(number, ranks);
    rank.Start(id);
    EXPECT_EQ(rank.Poll(), ncclSuccess);
    body(rank);
    rank.Stop();
  });
}

}  // namespace lockstep::fake_nccl

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_TEST_RANK_H_
