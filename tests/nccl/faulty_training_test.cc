#include "tests/nccl/faulty_training.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::Key;

// About so many of all faults, spread evenly over functions, calls, devices and codes.
constexpr std::size_t kSample = 80;

TEST(FaultyTraining, CallsWhatMovesBytes) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const HealthyRun healthy, TrainUndisturbed(2));
  for (const char* function : {"CommInitRankConfig", "GroupEnd", "Broadcast", "AllGather", "Send",
                               "Recv", "MemcpyAsync", "CommAbort"}) {
    EXPECT_THAT(healthy.calls, Contains(Key(function)));
  }
}

TEST(FaultyTraining, EndsWithRightValuesOrWithAnErrorOnAllRanks) {
  for (const int ranks : {2, 3}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const HealthyRun healthy, TrainUndisturbed(ranks));
    const std::vector<FakeNccl::Injection> faults = FaultsOf(healthy);
    std::map<Ending, int> endings;
    // Prime to the numbers of codes, so that all of them come.
    for (std::size_t i = 0; i < faults.size(); i += std::max<std::size_t>(faults.size() / kSample, 1) | 1) {
      const absl::StatusOr<Ending> ending = TrainWith(faults[i], ranks, healthy);
      LOCKSTEP_ASSERT_OK(ending);
      ++endings[*ending];
    }
    // Some calls may fail, as those that free; most may not.
    EXPECT_GT(endings[Ending::kRefused], endings[Ending::kUnharmed]);
  }
}

}  // namespace
}  // namespace lockstep
