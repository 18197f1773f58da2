#include "worker/torch/fake_device.h"

#include <array>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/ivalue.h"
#include "ATen/core/stack.h"
#include "ATen/detail/PrivateUse1HooksInterface.h"
#include "ATen/ops/from_blob.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "torch/library.h"

namespace lockstep {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

struct Current {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, kFakeDevices> streams = {};
  FakeDeviceUse use;
};
thread_local Current current;

class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  FakeGuard() = default;
  explicit FakeGuard(c10::DeviceType) {}
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, std::exchange(current.device, device.index())};
  }
  c10::Device getDevice() const override { return {kType, current.device}; }
  void setDevice(c10::Device device) const override { current.device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current.device = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current.streams.at(device.index()));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    c10::StreamId& now = current.streams.at(stream.device_index());
    return c10::Stream(c10::Stream::UNSAFE, stream.device(), std::exchange(now, stream.id()));
  }
  // Work is done at once, so that there is nothing to wait for.
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  c10::DeviceIndex deviceCount() const noexcept override { return kFakeDevices; }
  void synchronizeDevice(c10::DeviceIndex) const override { ++current.use.waits; }
};

// What autograd asks of a device before it goes backward there.
class FakeHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kFakeDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current.device; }
};

[[maybe_unused]] const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new FakeHooks);
  c10::register_privateuse1_backend("fake");
  return true;
}();

bool IsFake(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

// The same memory as a tensor of `device`, which keeps `tensor` alive.
at::Tensor AsOn(c10::Device device, const at::Tensor& tensor) {
  return at::from_blob(tensor.numel() == 0 ? nullptr : tensor.data_ptr(), tensor.sizes(),
                       tensor.strides(), [tensor](void*) {},
                       at::TensorOptions().dtype(tensor.dtype()).device(device), device);
}

void NoteOperator() {
  ++current.use.operators;
  current.use.streams.insert(current.streams[current.device]);
}

// What copy_() is made of where one side is not of a device that LibTorch knows.
at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  NoteOperator();
  const auto lent = [](const at::Tensor& tensor) {
    return IsFake(tensor) ? AsOn(c10::kCPU, tensor) : tensor;
  };
  lent(to).copy_(lent(from), non_blocking);
  return to;
}

// Lends an operator of the CPU the arguments of a call on the fake device.
class Call {
 public:
  c10::IValue ToCpu(const c10::IValue& value) {
    if (value.isTensor()) return Lend(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> lent;
      for (const at::Tensor& each : value.toTensorVector()) lent.push_back(Lend(each));
      return lent;
    }
    if (value.isDevice() && value.toDevice().type() == kType) {
      device_ = value.toDevice();
      return c10::Device(c10::kCPU);
    }
    return value;
  }

  c10::IValue FromCpu(const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) return value;
    const at::Tensor& tensor = value.toTensor();
    for (const auto& [fake, cpu] : lent_) {
      if (cpu.is_same(tensor)) return fake;
    }
    for (const at::Tensor& own : of_cpu_) {
      if (own.is_same(tensor)) return own;
    }
    return device_.type() == kType ? AsOn(device_, tensor) : tensor;
  }

  void CheckOneDevice(const std::string& name) const {
    TORCH_CHECK(lent_.empty() || !has_many_of_cpu_, name,
                ": expected all tensors to be on one device");
  }

 private:
  at::Tensor Lend(const at::Tensor& tensor) {
    if (!IsFake(tensor)) {
      if (tensor.defined()) of_cpu_.push_back(tensor);
      has_many_of_cpu_ = has_many_of_cpu_ || (tensor.defined() && tensor.dim() > 0);
      return tensor;
    }
    device_ = tensor.device();
    lent_.emplace_back(tensor, AsOn(c10::kCPU, tensor));
    return lent_.back().second;
  }

  bool has_many_of_cpu_ = false;
  c10::Device device_ = c10::kCPU;
  std::vector<std::pair<at::Tensor, at::Tensor>> lent_;
  std::vector<at::Tensor> of_cpu_;
};

void RunOnCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  NoteOperator();
  Call call;
  const auto arguments = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  for (auto at = stack->end() - arguments; at != stack->end(); ++at) *at = call.ToCpu(*at);
  call.CheckOneDevice(op.schema().name());
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  const auto returns = static_cast<std::ptrdiff_t>(op.schema().returns().size());
  for (auto at = stack->end() - returns; at != stack->end(); ++at) *at = call.FromCpu(*at);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { library.impl("_copy_from", &CopyFrom); }

C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeGuard);

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&RunOnCpu>());
}

}  // namespace

c10::StreamId CurrentFakeStream(c10::DeviceIndex index) { return current.streams.at(index); }
c10::DeviceIndex CurrentFakeDevice() { return current.device; }
FakeDeviceUse TakeFakeDeviceUse() { return std::exchange(current.use, {}); }

}  // namespace lockstep
