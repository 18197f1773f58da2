// What a test that needs networks of its own derives from: it is skipped, and says why, where the
// system allows none. Its program's main() is world_main.cc.
#ifndef LOCKSTEP_TESTS_HOSTS_WORLD_FIXTURE_H_
#define LOCKSTEP_TESTS_HOSTS_WORLD_FIXTURE_H_

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace lockstep {

// Whether this process is in a private world (private_world.h); else why not.
const absl::Status& PrivateWorld();

class WorldTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!PrivateWorld().ok()) {
      GTEST_SKIP() << "NOT TESTED: there can be no networks here: " << PrivateWorld().message();
    }
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_HOSTS_WORLD_FIXTURE_H_
