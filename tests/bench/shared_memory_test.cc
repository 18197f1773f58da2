#include "tests/bench/shared_memory.h"

#include <atomic>
#include <thread>
#include <vector>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(SharedMemory, WhatOneWritesTheOtherReads) {
  const auto creator = SharedMemory::Create(100);
  ASSERT_THAT(creator, IsOk());
  const auto opener = SharedMemory::Open((*creator)->path());
  ASSERT_THAT(opener, IsOk());
  (*creator)->room()[99] = std::byte{7};
  EXPECT_EQ((*opener)->room()[99], std::byte{7});
}

TEST(SharedMemory, NobodyLeavesABarrierBeforeAllAreThere) {
  constexpr int kRanks = 3;
  constexpr int kRounds = 200;
  const auto memory = SharedMemory::Create(0);
  ASSERT_THAT(memory, IsOk());
  std::atomic<int> arrived = 0;
  std::atomic<int> early = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&] {
      for (int round = 1; round <= kRounds; ++round) {
        ++arrived;
        if (!(*memory)->Barrier(kRanks, absl::Seconds(30)).ok()) ++early;
        if (arrived < kRanks * round) ++early;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(early, 0);
}

TEST(SharedMemory, ABarrierThatNobodyElseReachesEndsAtItsDeadline) {
  const auto memory = SharedMemory::Create(0);
  ASSERT_THAT(memory, IsOk());
  EXPECT_THAT((*memory)->Barrier(2, absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

}  // namespace
}  // namespace lockstep
