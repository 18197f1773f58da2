// A device of LibTorch for tests on hosts that have none but the CPU.
//
// Its memory is the host's, and its operators are the CPU's, but tensors on it are of
// another device ("fake"): as on a GPU, an operator refuses tensors of two
// devices, but for copies and single numbers of the CPU. It has streams, which say no
// more than which one was current when an operator ran. Linking this makes the device.
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_TORCH_FAKE_DEVICE_H_
#define LOCKSTEP_WORKER_TORCH_FAKE_DEVICE_H_

#include <cstdint>
#include <set>

#include "c10/core/Device.h"
#include "c10/core/Stream.h"

namespace lockstep {

inline constexpr int kFakeDevices = 2;
inline c10::Device FakeDevice() { return {c10::DeviceType::PrivateUse1, 1}; }

// Of the calling thread: of each device, the current stream.
c10::StreamId CurrentFakeStream(c10::DeviceIndex index);
c10::DeviceIndex CurrentFakeDevice();

// What the calling thread's operators did since the last call.
struct FakeDeviceUse {
  std::int64_t operators = 0;
  std::set<c10::StreamId> streams;  // current when they ran
  std::int64_t waits = 0;           // for all of a device
};
FakeDeviceUse TakeFakeDeviceUse();

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_FAKE_DEVICE_H_
