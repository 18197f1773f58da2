#include "worker/torch/torch_device.h"

#include <cstdint>
#include <stdexcept>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/torch/fake_device.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TorchDeviceTest : public testing::Test {
 protected:
  // As the CUDA runtime gives them: addresses.
  void* Stream() { return &stream_; }
  c10::StreamId IdOfStream() const { return reinterpret_cast<std::intptr_t>(&stream_); }

  double stream_ = 0;
};

TEST_F(TorchDeviceTest, WorkIsPutOnTheStreamAndTheCurrentOneIsAsBefore) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, TorchDevice::Create(FakeDevice()));
  device->UseStream(Stream());
  EXPECT_EQ(CurrentFakeStream(1), 0);
  LOCKSTEP_EXPECT_OK(device->Run("looking", [&] {
    EXPECT_EQ(CurrentFakeStream(1), IdOfStream());
    EXPECT_EQ(CurrentFakeDevice(), 1);
    return absl::OkStatus();
  }));
  EXPECT_EQ(CurrentFakeStream(1), 0);
  EXPECT_EQ(CurrentFakeDevice(), 0);
}

TEST_F(TorchDeviceTest, TheCurrentStreamIsAsBeforeAfterAnErrorToo) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, TorchDevice::Create(FakeDevice()));
  device->UseStream(Stream());
  EXPECT_THAT(device->Run("breaking", []() -> absl::Status { throw std::runtime_error("broken"); }),
              StatusIs(absl::StatusCode::kInternal, "breaking failed: broken"));
  EXPECT_EQ(CurrentFakeStream(1), 0);
  EXPECT_EQ(CurrentFakeDevice(), 0);
}

TEST_F(TorchDeviceTest, NullIsTheDefaultStream) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, TorchDevice::Create(FakeDevice()));
  device->UseStream(Stream());
  device->UseStream(nullptr);
  LOCKSTEP_EXPECT_OK(device->Run("looking", [&] {
    EXPECT_EQ(CurrentFakeStream(1), 0);
    EXPECT_EQ(CurrentFakeDevice(), 1);
    return absl::OkStatus();
  }));
}

TEST_F(TorchDeviceTest, WithoutAnIndexItIsTheCurrentDevice) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device,
                                TorchDevice::Create(c10::Device(FakeDevice().type())));
  EXPECT_EQ(device->device(), c10::Device(FakeDevice().type(), 0));
}

TEST_F(TorchDeviceTest, MemoryIsOfTheDevice) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, TorchDevice::Create(FakeDevice()));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const at::Tensor zeros, device->Zeros(3));
  EXPECT_EQ(zeros.device(), FakeDevice());
  EXPECT_EQ(device->View(zeros.const_data_ptr(), 3, at::kFloat).device(), FakeDevice());
}

TEST_F(TorchDeviceTest, OneThatThereIsNotIsNamedWithWhatToDo) {
  EXPECT_THAT(TorchDevice::Create(c10::Device(c10::kXLA, 0)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("'xla:0'"), HasSubstr("link it, or train on the CPU"))));
  EXPECT_THAT(TorchDevice::Create(c10::Device(FakeDevice().type(), 2)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("'fake:2'"), HasSubstr("LibTorch finds 2"))));
}

TEST_F(TorchDeviceTest, StreamsHaveNoMeaningOnTheCpu) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto device, TorchDevice::Create(c10::kCPU));
  device->UseStream(Stream());
  float value = 0;
  LOCKSTEP_EXPECT_OK(device->Run("filling", [&] {
    device->View(&value, 1, at::kFloat).fill_(3);
    device->Wait();
    return absl::OkStatus();
  }));
  EXPECT_EQ(value, 3);
}

}  // namespace
}  // namespace lockstep
