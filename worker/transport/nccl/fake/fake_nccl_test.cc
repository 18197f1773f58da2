// Collectives and transfers against results that are computed here.
#include "worker/transport/nccl/fake/fake_nccl.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/nccl/fake/test_rank.h"

namespace lockstep::fake_nccl {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;

template <typename T>
std::vector<T> Read(const T* memory, int elements) {
  return std::vector<T>(memory, memory + elements);
}

// Of each rank other values.
template <typename T>
std::vector<T> Values(int rank, int elements) {
  std::vector<T> values(elements);
  for (int i = 0; i < elements; ++i) {
    values[i] = static_cast<T>(static_cast<float>((rank + 1) * (i % 7 + 1)) / 3 + 1);
  }
  return values;
}

class Collectives : public testing::TestWithParam<int> {
 protected:
  void TearDown() override {
    EXPECT_THAT(fake_.TakeViolations(), IsEmpty());
    EXPECT_THAT(fake_.Leaks(), IsEmpty());
  }
  const int ranks_ = GetParam();
  FakeNccl fake_;
};

TEST_P(Collectives, BroadcastGivesAllTheRootsElements) {
  Together(ranks_, [&](TestRank& rank) {
    for (int root = 0; root < ranks_; ++root) {
      float* send = rank.Device(Values<float>(rank.rank, 5));
      float* receive = rank.Device(std::vector<float>(5));
      EXPECT_EQ(rank.api.Broadcast(send, receive, 5, ncclFloat32, root, rank.comm, rank.stream),
                ncclInProgress);
      EXPECT_EQ(rank.Poll(), ncclSuccess);
      EXPECT_EQ(rank.api.Broadcast(send, send, 5, ncclFloat32, root, rank.comm, rank.stream),
                ncclInProgress);
      EXPECT_EQ(rank.Poll(), ncclSuccess);
      rank.Finish();
      EXPECT_THAT(Read(receive, 5), ElementsAreArray(Values<float>(root, 5)));
      EXPECT_THAT(Read(send, 5), ElementsAreArray(Values<float>(root, 5)));
    }
  });
}

TEST_P(Collectives, AllGatherPutsTheElementsOfRanksInOrder) {
  Together(ranks_, [&](TestRank& rank) {
    std::vector<std::int64_t> expected;
    for (int r = 0; r < ranks_; ++r) {
      for (const auto value : Values<std::int64_t>(r, 3)) expected.push_back(value);
    }
    std::int64_t* send = rank.Device(Values<std::int64_t>(rank.rank, 3));
    std::int64_t* receive = rank.Device(std::vector<std::int64_t>(3 * ranks_));
    std::int64_t* in_place = rank.Device(std::vector<std::int64_t>(3 * ranks_));
    std::copy(send, send + 3, in_place + 3 * rank.rank);
    rank.api.AllGather(send, receive, 3, ncclInt64, rank.comm, rank.stream);
    EXPECT_EQ(rank.Poll(), ncclSuccess);
    rank.api.AllGather(in_place + 3 * rank.rank, in_place, 3, ncclInt64, rank.comm, rank.stream);
    EXPECT_EQ(rank.Poll(), ncclSuccess);
    rank.Finish();
    EXPECT_THAT(Read(receive, 3 * ranks_), ElementsAreArray(expected));
    EXPECT_THAT(Read(in_place, 3 * ranks_), ElementsAreArray(expected));
  });
}

TEST_P(Collectives, EachRankSendsToAllInOneGroup) {
  Together(ranks_, [&](TestRank& rank) {
    std::vector<int> numbers(ranks_);
    std::iota(numbers.begin(), numbers.end(), 100 * rank.rank);
    int* send = rank.Device(numbers);
    int* receive = rank.Device(std::vector<int>(ranks_));
    EXPECT_EQ(rank.api.GroupStart(), ncclSuccess);
    for (int peer = 0; peer < ranks_; ++peer) {
      EXPECT_EQ(rank.api.Send(send + peer, 1, ncclInt32, peer, rank.comm, rank.stream),
                ncclSuccess);
      EXPECT_EQ(rank.api.Recv(receive + peer, 1, ncclInt32, peer, rank.comm, rank.stream),
                ncclSuccess);
    }
    EXPECT_EQ(rank.api.GroupEnd(), ncclInProgress);
    EXPECT_EQ(rank.Poll(), ncclSuccess);
    rank.Finish();
    for (int peer = 0; peer < ranks_; ++peer) EXPECT_EQ(receive[peer], 100 * peer + rank.rank);
  });
}

TEST_P(Collectives, ManyBroadcastsOfAGroupAreAllDone) {
  Together(ranks_, [&](TestRank& rank) {
    int* memory = rank.Device(std::vector<int>(ranks_, rank.rank));
    EXPECT_EQ(rank.api.GroupStart(), ncclSuccess);
    for (int root = 0; root < ranks_; ++root) {
      EXPECT_EQ(rank.api.Broadcast(memory + root, memory + root, 1, ncclInt32, root, rank.comm,
                                   rank.stream),
                ncclSuccess);
    }
    EXPECT_EQ(rank.api.GroupEnd(), ncclInProgress);
    EXPECT_EQ(rank.Poll(), ncclSuccess);
    rank.Finish();
    for (int root = 0; root < ranks_; ++root) EXPECT_EQ(memory[root], root);
  });
}

TEST_P(Collectives, WhatIsEmptyIsDoneAtOnce) {
  Together(ranks_, [&](TestRank& rank) {
    rank.api.Broadcast(nullptr, nullptr, 0, ncclFloat32, 0, rank.comm, rank.stream);
    EXPECT_EQ(rank.Poll(), ncclSuccess);
    rank.Finish();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Range(1, 5));

}  // namespace
}  // namespace lockstep::fake_nccl
