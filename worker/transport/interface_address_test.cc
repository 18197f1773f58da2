#include "worker/transport/interface_address.h"

#include <string>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(InterfaceAddress, OfTheLoopIsTheOneThatAllHostsHave) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string address, InterfaceAddress("lo"));
  EXPECT_EQ(address, "127.0.0.1");
}

TEST(InterfaceAddress, NamesAnInterfaceThatIsNotThere) {
  for (const char* interface : {"nowhere0", ""}) {
    EXPECT_THAT(InterfaceAddress(interface),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("no network interface '" + std::string(interface) + "'")));
  }
}

}  // namespace
}  // namespace lockstep
