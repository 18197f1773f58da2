// All state behind one FakeNccl, and how a function of the table gets to it.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_WORLD_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_WORLD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "worker/transport/nccl/fake/calls.h"
#include "worker/transport/nccl/fake/communicators.h"
#include "worker/transport/nccl/fake/fake_nccl.h"
#include "worker/transport/nccl/fake/memory.h"
#include "worker/transport/nccl/fake/streams.h"

namespace lockstep::fake_nccl {

// What the originals keep for each thread.
struct ThreadState {
  std::uint64_t world = 0;
  int device = 0;
  cudaError_t cuda_error = cudaSuccess;  // until GetLastCudaError
  Group group;
};

struct World {
  explicit World(const FakeNccl::Options& options);

  // That of the calling thread.
  ThreadState& Thread() const;

  // Records that a rule was broken by the device.
  void Violate(int device, const std::string& text);

  // Waits for `condition` or for the end of the world.
  template <typename Condition>
  void Await(Condition condition) {
    changed.AwaitFor(&mu, absl::InfiniteDuration(), [&] { return ending || condition(); });
  }

  // Waits until the device that owns it has no work, as the originals do, and frees it.
  // Returns why it must not be freed.
  std::optional<std::string> FreeWhenIdle(const char* function, Memory::Kind kind, void* start);

  // Ends all waits, and returns when no thread is inside any more.
  void End();

  const FakeNccl::Options options;
  const std::uint64_t number;  // no other world of this process has it

  // Guards all below. One for everything: work on streams moves data while it holds it,
  // so that neither an abort nor a Free comes in the middle.
  Mutex mu;
  CondVar changed;
  bool ending = false;
  int inside = 0;  // calls
  std::vector<std::string> violations;
  std::string last_error;  // for GetLastError
  Calls calls;
  Memory memory;
  Streams streams;
  Communicators communicators;
};

// The world of the FakeNccl that lives; null if there is none.
std::shared_ptr<World> ActiveWorld();
void SetActiveWorld(std::shared_ptr<World> world);  // null, or there is none yet

// What is left behind by a call that returned an error: it spoils the group that it is
// in, and GetLastCudaError says it.
void Keep(World& world, ncclResult_t result);
void Keep(World& world, cudaError_t error);

// One call of the table's `function`: counted as one on device_of(world), then, unless
// a fault is injected, body(world, device). Both run with the mutex held.
template <typename Result, typename DeviceOf, typename Body>
Result Enter(const std::shared_ptr<World>& world, const char* function, DeviceOf device_of,
             Body body) {
  // ncclInternalError, cudaErrorInitializationError: both 3.
  constexpr auto kNoWorld = static_cast<Result>(3);
  if (world == nullptr) return kNoWorld;
  MutexLock lock(&world->mu);
  if (world->ending) return kNoWorld;
  ++world->inside;
  const int device = device_of(*world);
  const std::optional<int> injected = world->calls.Enter(*world, function, device);
  Result result = kNoWorld;
  if (injected.has_value()) {
    result = static_cast<Result>(*injected);
    if (std::string_view(function) == "GroupEnd") world->Thread().group = {};
  } else if (!world->ending) {
    result = body(*world, device);
    if (world->ending) result = kNoWorld;  // while the body waited
  }
  Keep(*world, result);
  --world->inside;
  world->changed.SignalAll();
  return result;
}

template <typename Result, typename Body>
Result EnterOnThread(const char* function, Body body) {
  return Enter<Result>(
      ActiveWorld(), function, [](World& world) { return world.Thread().device; }, body);
}

// The tables' halves.
void FillCudaFunctions(NcclApi& api);
void FillNcclFunctions(NcclApi& api);

}  // namespace lockstep::fake_nccl

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_WORLD_H_
