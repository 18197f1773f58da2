// A short run of the program, and what it says of one that cannot be.
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/local_cluster/local_cluster.h"
#include "tools/process/child_process.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

absl::StatusOr<RunResult> RunChaos(std::vector<std::string> flags) {
  const absl::StatusOr<std::string> program = FindRunfile("lockstep/tests/chaos/chaos");
  if (!program.ok()) return program.status();
  return RunProgram({.program = *program, .arguments = std::move(flags)}, absl::Minutes(14));
}

TEST(Chaos, ForAMinuteCostsNoJobAnything) {
  const std::string folder = testing::TempDir();
  const std::string counts = folder + "/counts.json";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const RunResult result,
      RunChaos({"--minutes", "1", "--seed", "1", "--out", folder + "/chaos", "--json", counts}));
  ASSERT_TRUE(result.exit.ok()) << result.exit.ToString() << "\n" << result.output;
  std::cout << result.output;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string text, ReadFile(counts));
  const auto json = nlohmann::json::parse(text);
  EXPECT_GE(json.at("rounds"), 4);
  EXPECT_GT(json.at("epochs"), json.at("rounds"));
  int faults = 0;
  for (const auto& [name, times] : json.at("faults").items()) faults += times.get<int>();
  EXPECT_GE(faults, 4);
  EXPECT_EQ(json.at("leaked_segments"), 0);
  for (const std::string transport : {"shm", "gloo"}) {
    EXPECT_FALSE(json.at("longest_stall_seconds").at(transport).empty()) << transport;
  }
}

TEST(Chaos, WrongOptionsAreNamed) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const RunResult result, RunChaos({"--minutes", "0"}));
  EXPECT_EQ(result.exit.code, 2);
  EXPECT_THAT(result.output, testing::HasSubstr("--minutes"));
}

}  // namespace
}  // namespace lockstep
