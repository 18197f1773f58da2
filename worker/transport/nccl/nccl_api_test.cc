#include "worker/transport/nccl/nccl_api.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Each a fake that pretends to be something else; it stays loaded.
std::string Fake(const std::string& name) {
  return absl::StrCat("worker/transport/nccl/fake/libraries/lib", name, ".so");
}

absl::StatusOr<NcclApi> Load(const std::string& nccl, const std::string& cuda_runtime) {
  return LoadNcclApi({.nccl = Fake(nccl), .cuda_runtime = Fake(cuda_runtime)});
}

// Says what was found, what is needed, and the way out.
auto IsUnusable(const std::string& found, const std::string& needed) {
  return StatusIs(absl::StatusCode::kFailedPrecondition,
                  AllOf(HasSubstr("transport nccl cannot be used"), HasSubstr(found),
                        HasSubstr(needed), HasSubstr("or use transport gloo")));
}

TEST(LoadNcclApi, GivesFunctionsThatWork) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const NcclApi api, Load("fake", "fake"));
  int version = 0;
  EXPECT_EQ(api.GetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  int devices = 0;
  EXPECT_EQ(api.GetDeviceCount(&devices), cudaSuccess);
  EXPECT_EQ(devices, 2);

  void* memory = nullptr;
  ASSERT_EQ(api.MallocManaged(&memory, 4, cudaMemAttachGlobal), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(api.StreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(api.EventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(api.MemsetAsync(memory, 7, 4, stream), cudaSuccess);
  EXPECT_EQ(api.EventRecord(event, stream), cudaSuccess);
  while (api.EventQuery(event) == cudaErrorNotReady) {
  }
  EXPECT_EQ(static_cast<char*>(memory)[3], 7);
  EXPECT_EQ(api.EventDestroy(event), cudaSuccess);
  EXPECT_EQ(api.StreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(api.Free(memory), cudaSuccess);
}

TEST(LoadNcclApi, NamesAMissingLibraryAndWhatToInstall) {
  EXPECT_THAT(Load("none", "fake"),
              IsUnusable("libnone.so cannot be loaded (", "install NCCL 2.27.0 or newer"));
  EXPECT_THAT(Load("none", "fake"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("No such file")));
  EXPECT_THAT(Load("fake", "none"),
              IsUnusable("libnone.so cannot be loaded (",
                         "install the CUDA runtime of version 13"));
}

TEST(LoadNcclApi, NamesMissingFunctions) {
  EXPECT_THAT(Load("incomplete", "fake"),
              IsUnusable("libincomplete.so does not have ncclGetUniqueId, ncclCommInitRankConfig, ",
                         "install NCCL 2.27.0"));
  EXPECT_THAT(Load("incomplete", "fake").status().message(), Not(HasSubstr("ncclGetVersion")));
  EXPECT_THAT(Load("fake", "incomplete"),
              IsUnusable("libincomplete.so does not have cudaDriverGetVersion, ",
                         "install the CUDA runtime of version 13"));
}

TEST(LoadNcclApi, RefusesNcclThatIsOlderThanItsFloorOrOfAnotherMajorVersion) {
  EXPECT_THAT(Load("nccl_2_8_4", "fake"),
              IsUnusable("libnccl_2_8_4.so is NCCL 2.8.4",
                         "install NCCL 2.27.0 or newer of version 2"));
  EXPECT_THAT(Load("nccl_2_26_6", "fake"),
              IsUnusable("libnccl_2_26_6.so is NCCL 2.26.6", "install NCCL 2.27.0 or newer"));
  EXPECT_THAT(Load("nccl_2_27_0", "fake"), IsOk());
  EXPECT_THAT(Load("nccl_3_0_0", "fake"),
              IsUnusable("libnccl_3_0_0.so is NCCL 3.0.0", "of version 2"));
}

TEST(LoadNcclApi, RefusesACudaRuntimeOfAnotherMajorVersion) {
  EXPECT_THAT(Load("fake", "cuda_12_9"),
              IsUnusable("libcuda_12_9.so is the CUDA runtime 12.9",
                         "install the CUDA runtime of version 13"));
  EXPECT_THAT(Load("fake", "cuda_13_0"), IsOk());
  EXPECT_THAT(Load("fake", "cuda_14_0"), IsUnusable("CUDA runtime 14.0", "of version 13"));
}

TEST(LoadNcclApi, RefusesAHostWithoutADriverThatFitsOrAGpu) {
  EXPECT_THAT(Load("fake", "no_driver"),
              IsUnusable("there is no NVIDIA driver", "install an NVIDIA driver for CUDA 13"));
  EXPECT_THAT(Load("fake", "driver_12_8"),
              IsUnusable("the NVIDIA driver is one for CUDA 12.8", "for CUDA 13 or newer"));
  EXPECT_THAT(Load("fake", "no_gpu"),
              IsUnusable("no GPU was found (no CUDA-capable device is detected)",
                         "CUDA_VISIBLE_DEVICES"));
}

}  // namespace
}  // namespace lockstep
