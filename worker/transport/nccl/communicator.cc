#include "worker/transport/nccl/communicator.h"

#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/mono_time.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "worker/transport/nccl/errors.h"

namespace lockstep::nccl_link {
namespace {

// Of a thread that may never come back: it owns all that it uses.
struct Aborting {
  Mutex mu;
  CondVar changed;
  bool done ABSL_GUARDED_BY(mu) = false;
  ncclResult_t result ABSL_GUARDED_BY(mu) = ncclSuccess;
};

// Whether it was aborted in time.
bool AbortInTime(const NcclApi& api, int device, ncclComm_t comm, absl::Duration timeout) {
  const auto state = std::make_shared<Aborting>();
  std::thread helper([state, api, device, comm] {
    api.SetDevice(device);
    const ncclResult_t result = api.CommAbort(comm);
    MutexLock lock(&state->mu);
    state->done = true;
    state->result = result;
    state->changed.SignalAll();
  });
  bool done;
  bool aborted;
  {
    MutexLock lock(&state->mu);
    done = state->changed.AwaitFor(&state->mu, timeout, [&] { return state->done; });
    aborted = done && state->result == ncclSuccess;
  }
  done ? helper.join() : helper.detach();
  return aborted;
}

}  // namespace

absl::Status Communicator::Form(int ranks, int rank, const ncclUniqueId& id) {
  constexpr absl::string_view kWhat = "forming of the communicator";
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      FromNccl(device_.api(), device_.api().CommInitRankConfig(&comm_, ranks, id, rank, &config),
               kWhat, nullptr));
  return AwaitReady(kWhat);
}

absl::Status Communicator::Put(absl::string_view what, const Post& post) {
  LOCKSTEP_RETURN_IF_ERROR(FromNccl(device_.api(), post(comm_, device_.moves()), what, comm_));
  return AwaitReady(what);
}

absl::Status Communicator::PutGroup(absl::string_view what, const Post& post) {
  LOCKSTEP_RETURN_IF_ERROR(FromNccl(device_.api(), device_.api().GroupStart(), what, comm_));
  const absl::Status posted = FromNccl(device_.api(), post(comm_, device_.moves()), what, comm_);
  // Also after an error: else the thread's next calls would belong to the group.
  const absl::Status ended = FromNccl(device_.api(), device_.api().GroupEnd(), what, comm_);
  LOCKSTEP_RETURN_IF_ERROR(posted);
  LOCKSTEP_RETURN_IF_ERROR(ended);
  return AwaitReady(what);
}

absl::StatusOr<bool> Communicator::Ready(absl::string_view what) {
  ncclResult_t state = ncclSuccess;
  LOCKSTEP_RETURN_IF_ERROR(
      FromNccl(device_.api(), device_.api().CommGetAsyncError(comm_, &state), what, comm_));
  LOCKSTEP_RETURN_IF_ERROR(FromNccl(device_.api(), state, what, comm_));
  return state == ncclSuccess;
}

absl::Status Communicator::AwaitReady(absl::string_view what) {
  return waiter_.Until(absl::StrCat("the ", what), [&] { return Ready(what); });
}

absl::Status Communicator::AwaitThat(absl::string_view what,
                                     const std::function<absl::StatusOr<bool>()>& done) {
  return waiter_.Until(absl::StrCat("the ", what), [&]() -> absl::StatusOr<bool> {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool ready, Ready(what));
    if (!ready) return false;
    return done();
  });
}

absl::Status Communicator::Await(absl::string_view what, const Event& event) {
  return AwaitThat(what, [&] { return event.Reached(); });
}

absl::Status Communicator::AwaitAll(absl::string_view what) {
  LOCKSTEP_RETURN_IF_ERROR(device_.Finish());
  return Await(what, device_.ended());
}

absl::Status Communicator::Register(const DeviceMemory& memory) {
  void* handle = nullptr;  // goes with the communicator
  const ncclResult_t result = device_.api().CommRegister(
      comm_, memory.data(), static_cast<std::size_t>(memory.bytes()), &handle);
  if (result != ncclSuccess && result != ncclInProgress) {
    static std::once_flag logged;
    std::call_once(logged, [&] {
      LogInfo("NCCL does not register arenas, which is slower on some networks: ",
              FromNccl(device_.api(), result, "registration", comm_).message());
    });
  }
  return AwaitReady("registration of an arena");
}

bool Communicator::Abort(absl::Duration timeout) {
  const RealClock clock;
  const MonoTime end = clock.Now() + timeout;
  if (ncclComm_t comm = std::exchange(comm_, nullptr)) {
    if (!AbortInTime(device_.api(), device_.number(), comm, timeout)) return false;
  }
  if (!device_.MakeCurrent().ok() || !device_.Finish().ok()) return true;
  return PollFor(end - clock.Now(), [&] {
    const absl::StatusOr<bool> reached = device_.ended().Reached();
    return !reached.ok() || *reached;  // a device that failed runs nothing
  });
}

}  // namespace lockstep::nccl_link
