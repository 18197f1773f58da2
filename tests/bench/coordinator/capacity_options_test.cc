#include "tests/bench/coordinator/capacity_options.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CapacityOptions Parsed(const std::vector<std::string>& arguments) {
  const auto parsed = ParseCapacityOptions(arguments);
  const auto* options = std::get_if<CapacityOptions>(&parsed);
  EXPECT_NE(options, nullptr) << std::get<EarlyExit>(parsed).text;
  return options == nullptr ? CapacityOptions() : *options;
}

TEST(CapacityOptions, HasCasesWithoutArguments) {
  EXPECT_EQ(Parsed({}), CapacityOptions());
  EXPECT_THAT(CapacityOptions().workers, ElementsAre(100, 1000, 5000));
  EXPECT_THAT(CapacityOptions().tls, ElementsAre("off", "on"));
}

TEST(CapacityOptions, TakesListsAndNumbers) {
  const CapacityOptions options =
      Parsed({"--workers", "7,20", "--tls", "on", "--workers-per-connection", "1", "--seconds", "3",
              "--json", "report.json"});
  EXPECT_THAT(options.workers, ElementsAre(7, 20));
  EXPECT_THAT(options.tls, ElementsAre("on"));
  EXPECT_EQ(options.workers_per_connection, 1);
  EXPECT_EQ(options.seconds, 3);
  EXPECT_EQ(options.json, "report.json");
}

TEST(CapacityOptions, HelpIsNoErrorAndWhatIsNotKnownIsOne) {
  const auto help = std::get<EarlyExit>(ParseCapacityOptions({"--help"}));
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.text, HasSubstr("p99 is from handing"));
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"--workers", "0"}, {"--workers", "10001"}, {"--tls", "maybe"}, {"--sprint"}}) {
    const auto parsed = ParseCapacityOptions(wrong);
    ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed)) << wrong.front();
    EXPECT_EQ(std::get<EarlyExit>(parsed).code, 2);
    EXPECT_THAT(std::get<EarlyExit>(parsed).text, HasSubstr(wrong.front()));
  }
}

}  // namespace
}  // namespace lockstep
