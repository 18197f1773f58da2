// FakeNccl: NCCL and the CUDA runtime on host memory, for ranks that are threads of
// one process. What its table does is what the originals do, at a time that is as bad
// as theirs: work on streams runs later and on other threads, operations wait for
// their peers for ever, results of calls come only by polling.
//
// It checks what the originals leave unchecked (see README.md) and keeps a list of
// the rules that were broken. Where ranks disagree, it hangs, until they abort.
//
// Not a model of speed, nor of which algorithm NCCL chooses.
//
// While an object lives, it is the one that all tables act on: one at a time. When it
// dies, all waits inside of it end with errors, and its threads are joined. Threads
// of a test may still be inside a call then, but not enter one later with handles that
// they got from it. Thread-safe.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_FAKE_NCCL_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_FAKE_NCCL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "worker/transport/nccl/nccl_api.h"

namespace lockstep {
namespace fake_nccl {
struct World;
}  // namespace fake_nccl

class FakeNccl {
 public:
  struct Options {
    int devices = 8;
    int nccl_version = NCCL_VERSION_CODE;
    int runtime_version = CUDART_VERSION;
    int driver_version = CUDART_VERSION;
    // How often CommGetAsyncError says ncclInProgress though all is ready.
    int polls = 2;
    // Whether the first group of collectives on a communicator stays in progress until
    // all ranks have come to theirs, since that is when NCCL connects them.
    bool connects_at_first_use = true;
  };

  // What happens in place of a call.
  enum class Fault {
    kResult,      // it returns `result`, and does nothing
    kDelay,       // it starts after `delay`
    kHold,        // it starts after Release()
    kAsyncError,  // of CommGetAsyncError: from this call on, it reports `result`, until an abort
  };
  struct Injection {
    std::string function;       // a member of NcclApi: "Broadcast"
    int call = 0;               // from 0, of those on `device`
    std::optional<int> device;  // nullopt: calls on any device are counted together
    Fault fault = Fault::kResult;
    int result = 0;  // ncclResult_t or cudaError_t
    absl::Duration delay;
  };

  // There must be no other.
  explicit FakeNccl(const Options& options);
  FakeNccl() : FakeNccl(Options()) {}
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  // The table of the fake. Calls while no FakeNccl lives are errors.
  static NcclApi Api();

  // The functions that return a code, which can be counted and injected into.
  static std::vector<std::string> EntryPoints();
  // Whether a member of the table is NCCL's, and returns its codes; else it is CUDA's.
  static bool IsOfNccl(const std::string& function);

  // The rules broken so far, each once in the words of a sentence; forgets them.
  std::vector<std::string> TakeViolations();

  // What was allocated or created and is not yet freed, destroyed or aborted.
  std::vector<std::string> Leaks();

  // A call is on the device of the communicator or stream that it is given, else on
  // the one that its thread has set (0 before SetDevice).
  void Inject(const Injection& injection);
  int CallsOf(const std::string& function, std::optional<int> device = std::nullopt);

  // Waits until `calls` calls are held (kHold), or `timeout` has passed; whether they are.
  bool AwaitHeld(int calls, absl::Duration timeout);
  // Lets held calls start; later ones are not held.
  void Release();

  // Puts `work` on a stream, as a kernel of the program's own would be. It calls no function of
  // the table.
  void Launch(cudaStream_t stream, std::function<void()> work);

  // Waits until no stream has work, or `timeout` has passed; whether none has.
  bool AwaitIdle(absl::Duration timeout);

 private:
  const std::shared_ptr<fake_nccl::World> world_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_FAKE_NCCL_H_
