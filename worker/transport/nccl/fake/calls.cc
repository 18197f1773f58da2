#include "worker/transport/nccl/fake/calls.h"

#include "worker/transport/nccl/fake/world.h"

namespace lockstep::fake_nccl {

std::optional<int> Calls::Enter(World& world, const std::string& function, int device) {
  const int on_device = counts_[{function, device}]++;
  const int in_all = CallsOf(function, std::nullopt) - 1;
  // A copy: the wait below lets others inject.
  const std::vector<FakeNccl::Injection> injections = injections_;
  std::optional<int> result;
  for (const FakeNccl::Injection& injection : injections) {
    if (injection.function != function) continue;
    if (injection.device.has_value() && *injection.device != device) continue;
    if ((injection.device.has_value() ? on_device : in_all) != injection.call) continue;
    switch (injection.fault) {
      case FakeNccl::Fault::kResult:
        result = injection.result;
        break;
      case FakeNccl::Fault::kDelay:
        world.changed.AwaitFor(&world.mu, injection.delay, [&] { return world.ending; });
        break;
      case FakeNccl::Fault::kHold:
        ++held_;
        world.changed.SignalAll();
        world.Await([&] { return released_; });
        --held_;
        break;
      case FakeNccl::Fault::kAsyncError:
        async_errors_[injection.device] = injection.result;
        break;
    }
  }
  return result;
}

std::optional<int> Calls::AsyncError(int device) const {
  for (const std::optional<int> key : {std::optional<int>(device), std::optional<int>()}) {
    const auto error = async_errors_.find(key);
    if (error != async_errors_.end()) return error->second;
  }
  return std::nullopt;
}

void Calls::ForgetAsyncError(int device) {
  async_errors_.erase(device);
  async_errors_.erase(std::nullopt);
}

int Calls::CallsOf(const std::string& function, std::optional<int> device) const {
  int calls = 0;
  for (const auto& [key, count] : counts_) {
    if (key.first == function && (!device.has_value() || key.second == *device)) calls += count;
  }
  return calls;
}

}  // namespace lockstep::fake_nccl
