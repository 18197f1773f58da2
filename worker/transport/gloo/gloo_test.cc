#include "worker/transport/gloo/gloo_transport.h"

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/transport/conformance/conformance.h"

namespace lockstep {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Gloo, TransportConformance,
    AllWorldSizes({.make_factory = [] { return std::make_shared<GlooFactory>(GlooOptions{}); }}),
    ConformanceCaseName);

TEST(GlooFactory, RefusesAnInterfaceThatIsNotThere) {
  GlooFactory factory({.interface = "nowhere0"});
  EXPECT_THAT(factory.Create({.epoch = Epoch(1), .rank = 0, .members = {"w0"}},
                             [](const std::optional<std::string>& mine)
                                 -> absl::StatusOr<std::string> { return *mine; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("nowhere0")));
}

TEST(GlooFactory, RefusesAnEndpointThatIsNoAddress) {
  GlooFactory factory({});
  for (const std::string endpoint : {"", "12 4 99", "127.0.0.1:0", "127.0.0.1:x", "a:b:c"}) {
    EXPECT_THAT(factory.Create({.epoch = Epoch(1), .rank = 1, .members = {"w0", "w1"}},
                               [&](const std::optional<std::string>&)
                                   -> absl::StatusOr<std::string> { return endpoint; }),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace lockstep
