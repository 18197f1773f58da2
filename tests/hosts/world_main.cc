#include "gtest/gtest.h"
#include "tests/hosts/private_world.h"
#include "tests/hosts/world_fixture.h"

namespace lockstep {
namespace {

absl::Status& TheWorld() {
  static auto* const world = new absl::Status();
  return *world;
}

}  // namespace

const absl::Status& PrivateWorld() { return TheWorld(); }

}  // namespace lockstep

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return lockstep::RunInPrivateWorld([](const absl::Status& world) {
    lockstep::TheWorld() = world;
    return RUN_ALL_TESTS();
  });
}
