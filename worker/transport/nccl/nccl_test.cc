#include "worker/transport/nccl/nccl_transport.h"

#include <memory>

#include "gtest/gtest.h"
#include "worker/transport/conformance/conformance.h"
#include "worker/transport/nccl/fake_gpus.h"

namespace lockstep {
namespace {

const ConformanceCase kCase = {.make_factory = [] { return std::make_shared<FakeGpus>(); }};

INSTANTIATE_TEST_SUITE_P(Nccl, TransportConformance, AllWorldSizes(kCase), ConformanceCaseName);

INSTANTIATE_TEST_SUITE_P(NcclOnOneHost, TransportConformance,
                         testing::Values(ConformanceCase{.make_factory = kCase.make_factory,
                                                         .world_size = 8}),
                         ConformanceCaseName);

}  // namespace
}  // namespace lockstep
