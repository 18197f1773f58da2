#include "worker/transport/shm/shm_transport.h"

#include "gtest/gtest.h"
#include "worker/transport/conformance/conformance.h"

namespace lockstep {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Shm, TransportConformance,
    AllWorldSizes({.make_factory = [] { return std::make_shared<ShmFactory>(); }}),
    ConformanceCaseName);

}  // namespace
}  // namespace lockstep
