#include <cstdint>
#include <string>

#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "gtest/gtest.h"
#include "tests/sim/simulation.h"

namespace lockstep::sim {
namespace {

class SimTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetUpLog("sim", static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1));
  }
};

TEST_F(SimTest, PromisesHoldInTheFirst200Seeds) {
  std::int64_t steps = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const RunResult result = RunSimulation({.seed = seed});
    ASSERT_EQ(result.violation, "") << "./lockstep sim --seed " << seed << " --trace\n"
                                    << result.cluster;
    steps += result.steps;
  }
  EXPECT_GT(steps, 200 * 20) << "runs that do nothing show nothing";
}

TEST_F(SimTest, TheSameSeedGivesTheSameRun) {
  for (const std::uint64_t seed : {3, 14}) {
    const RunResult one = RunSimulation({.seed = seed});
    const RunResult other = RunSimulation({.seed = seed});
    EXPECT_EQ(one.trace, other.trace);
    EXPECT_EQ(one.digest, other.digest);
  }
}

// Each rule is left out in turn: within 1000 seeds somebody must miss it, in a run that is
// sound with it.
class RulesTest : public SimTest, public testing::WithParamInterface<Without> {};

TEST_P(RulesTest, ARuleThatIsLeftOutIsMissed) {
  std::uint64_t seed = 1;
  RunResult result;
  while (seed <= 1000) {
    result = RunSimulation({.seed = seed, .without = GetParam()});
    if (!result.violation.empty()) break;
    ++seed;
  }
  ASSERT_LE(seed, 1000u) << "nothing was found";
  RecordProperty("seed", static_cast<int>(seed));
  EXPECT_EQ(RunSimulation({.seed = seed}).violation, "") << seed;
}

INSTANTIATE_TEST_SUITE_P(Rules, RulesTest,
                         testing::Values(Without::kCommitPoint, Without::kBuddy,
                                         Without::kFencing, Without::kAgreement));

}  // namespace
}  // namespace lockstep::sim
