#include "worker/torch/cuda_library.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(LoadTorchCuda, SaysWhatIsMissingAndWhereItIs) {
  EXPECT_THAT(LoadTorchCuda("libno_such_library.so"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("libno_such_library.so: cannot open"),
                             HasSubstr("torch/lib of the Python package torch 2."))));
}

TEST(LoadTorchCuda, RefusesALibraryThatRegistersNoDevice) {
  EXPECT_THAT(LoadTorchCuda("libm.so.6"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("libm.so.6 is there, but registers no CUDA device")));
}

}  // namespace
}  // namespace lockstep
