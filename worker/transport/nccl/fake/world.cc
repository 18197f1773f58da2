#include "worker/transport/nccl/fake/world.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace lockstep::fake_nccl {
namespace {

std::atomic<std::uint64_t> worlds_made{0};

Mutex active_mu;
std::shared_ptr<World>& Active() {
  static auto* const active = new std::shared_ptr<World>();
  return *active;
}

}  // namespace

World::World(const FakeNccl::Options& options) : options(options), number(++worlds_made) {}

ThreadState& World::Thread() const {
  thread_local ThreadState state;
  if (state.world != number) {
    state = ThreadState();
    state.world = number;
  }
  return state;
}

void World::Violate(int device, const std::string& text) {
  last_error = absl::StrCat("GPU ", device, ": ", text);
  violations.push_back(last_error);
}

std::optional<std::string> World::FreeWhenIdle(const char* function, Memory::Kind kind,
                                               void* start) {
  const Memory::Allocation* allocation = memory.Find(start);
  if (allocation != nullptr) {
    Await([this, owner = allocation->device] { return streams.Idle(owner); });
    if (ending) return std::nullopt;
  }
  if (communicators.IsRegistered(start)) {
    return absl::StrCat(function, " of memory that a communicator has registered");
  }
  if (memory.Free(kind, start)) return std::nullopt;
  return absl::StrCat(function, " of what it did not allocate, or twice");
}

void World::End() {
  {
    MutexLock lock(&mu);
    ending = true;
    changed.SignalAll();
    changed.AwaitFor(&mu, absl::InfiniteDuration(), [this] { return inside == 0; });
  }
  streams.Join();
}

std::shared_ptr<World> ActiveWorld() {
  MutexLock lock(&active_mu);
  return Active();
}

void SetActiveWorld(std::shared_ptr<World> world) {
  MutexLock lock(&active_mu);
  LOCKSTEP_CHECK(world == nullptr || Active() == nullptr);
  Active() = std::move(world);
}

}  // namespace lockstep::fake_nccl
