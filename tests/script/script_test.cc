// Runs stories/*.txt. To accept a changed behaviour:
//   REWRITE=1 bazel run //tests/script:script_test
#include <memory>
#include <string>

#include "common/base/log.h"
#include "gtest/gtest.h"
#include "tests/golden/golden_scripts.h"
#include "tests/script/story.h"

namespace lockstep::sim {
namespace {

TEST(Stories, HappenAsTheyAreTold) {
  SetUpLog("script", static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1));
  ExpectScriptsHold("tests/script/stories", [] {
    return [story = std::make_shared<Story>()](const std::string& command) {
      return story->Run(command);
    };
  });
}

}  // namespace
}  // namespace lockstep::sim
