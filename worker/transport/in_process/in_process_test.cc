#include "worker/transport/in_process/in_process_transport.h"

#include "gtest/gtest.h"
#include "worker/transport/conformance/conformance.h"

namespace lockstep {
namespace {

INSTANTIATE_TEST_SUITE_P(
    InProcess, TransportConformance,
    AllWorldSizes({.make_factory = [] { return std::make_shared<InProcessFactory>(); }}),
    ConformanceCaseName);

}  // namespace
}  // namespace lockstep
