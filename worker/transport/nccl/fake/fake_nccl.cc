#include "worker/transport/nccl/fake/fake_nccl.h"

#include <type_traits>
#include <utility>

#include "worker/transport/nccl/fake/world.h"
#include "worker/transport/nccl/nccl_functions.h"

namespace lockstep {

using fake_nccl::World;

FakeNccl::FakeNccl(const Options& options) : world_(std::make_shared<World>(options)) {
  fake_nccl::SetActiveWorld(world_);
}

FakeNccl::~FakeNccl() {
  fake_nccl::SetActiveWorld(nullptr);
  world_->End();
}

NcclApi FakeNccl::Api() {
  NcclApi api;
  fake_nccl::FillNcclFunctions(api);
  fake_nccl::FillCudaFunctions(api);
  return api;
}

std::vector<std::string> FakeNccl::EntryPoints() {
  std::vector<std::string> names;
  const auto add = [&]<typename Result, typename... Args>(const char* name,
                                                          Result (*NcclApi::*)(Args...)) {
    if constexpr (!std::is_pointer_v<Result>) names.push_back(name);
  };
#define LOCKSTEP_ADD(member, symbol) add(#member, &NcclApi::member);
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_ADD)
  LOCKSTEP_CUDA_FUNCTIONS(LOCKSTEP_ADD)
#undef LOCKSTEP_ADD
  return names;
}

bool FakeNccl::IsOfNccl(const std::string& function) {
#define LOCKSTEP_EQUALS(member, symbol) || function == #member
  return false LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_EQUALS);
#undef LOCKSTEP_EQUALS
}

std::vector<std::string> FakeNccl::TakeViolations() {
  MutexLock lock(&world_->mu);
  return std::exchange(world_->violations, {});
}

std::vector<std::string> FakeNccl::Leaks() {
  MutexLock lock(&world_->mu);
  std::vector<std::string> leaks = world_->memory.Leaks();
  for (const auto& more : {world_->streams.Leaks(), world_->communicators.Leaks()}) {
    leaks.insert(leaks.end(), more.begin(), more.end());
  }
  return leaks;
}

void FakeNccl::Inject(const Injection& injection) {
  MutexLock lock(&world_->mu);
  world_->calls.Inject(injection);
}

int FakeNccl::CallsOf(const std::string& function, std::optional<int> device) {
  MutexLock lock(&world_->mu);
  return world_->calls.CallsOf(function, device);
}

bool FakeNccl::AwaitHeld(int calls, absl::Duration timeout) {
  MutexLock lock(&world_->mu);
  return world_->changed.AwaitFor(&world_->mu, timeout,
                                  [&] { return world_->calls.held() >= calls; });
}

void FakeNccl::Release() {
  MutexLock lock(&world_->mu);
  world_->calls.Release();
  world_->changed.SignalAll();
}

void FakeNccl::Launch(cudaStream_t stream, std::function<void()> work) {
  MutexLock lock(&world_->mu);
  const int device = world_->Thread().device;
  fake_nccl::Stream* const found = world_->streams.FindStream(*world_, stream, device);
  if (found == nullptr) {
    return world_->Violate(device, "a kernel on a stream that does not exist any more");
  }
  if (found->unlaunched > 0) {
    world_->Violate(device, "a kernel on a stream that a group in progress may or may not have "
                            "reached: poll first");
  }
  world_->streams.Enqueue(*world_, *found, [work = std::move(work)](World&) { work(); });
}

bool FakeNccl::AwaitIdle(absl::Duration timeout) {
  MutexLock lock(&world_->mu);
  return world_->changed.AwaitFor(&world_->mu, timeout, [&] { return world_->streams.Idle(); });
}

}  // namespace lockstep
