// Communicators of the fake: how they form, what is in progress on them, how they end.
// And groups.
//
// Part of World, whose mutex is held by all callers.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_COMMUNICATORS_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_COMMUNICATORS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/transport/nccl/fake/matching.h"
#include "worker/transport/nccl/fake/operations.h"
#include "worker/transport/nccl/nccl_api.h"

namespace lockstep::fake_nccl {

struct Communicator;
struct Stream;
struct World;

// The ranks that share an id.
struct Formation {
  std::vector<Communicator*> members;  // by rank; null: not there yet
  bool complete = false;
  ncclResult_t error = ncclSuccess;
  Matching matching;
};

struct Call {
  Communicator* communicator;
  Stream* stream;
  std::shared_ptr<Operation> operation;
};

// What a thread has called since the outermost GroupStart.
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Call> calls;
  std::vector<Communicator*> joins;
  std::vector<Communicator*> aborts;
};

struct Communicator {
  int device = 0;
  int rank = 0;
  int ranks = 0;
  std::shared_ptr<Formation> formation;
  ncclResult_t error = ncclSuccess;
  bool error_was_seen = false;
  bool joined = false;  // after the end of its group
  bool aborted = false;
  bool busy = true;  // until CommGetAsyncError has said that it is not
  int polls_left = 0;
  std::vector<Call> in_progress;  // the group that is not on the stream yet
  std::vector<std::pair<const std::byte*, std::size_t>> registered;
  int threads_inside = 0;
};

class Communicators {
 public:
  ncclResult_t MakeId(World& world, ncclUniqueId* id);
  ncclResult_t Init(World& world, ncclComm_t* handle, int ranks, const ncclUniqueId& id, int rank,
                    const ncclConfig_t* config);
  ncclResult_t Poll(World& world, Communicator& communicator, ncclResult_t* error);
  ncclResult_t Abort(World& world, Communicator& communicator);
  ncclResult_t Register(World& world, Communicator& communicator, void* buffer, std::size_t bytes,
                        void** handle);
  ncclResult_t Operate(World& world, Communicator& communicator, cudaStream_t stream,
                       Operation operation);
  ncclResult_t StartGroup(World& world);
  ncclResult_t EndGroup(World& world, int device);

  // Null if there never was one. Aborted ones are kept.
  Communicator* Find(ncclComm_t handle);
  bool IsRegistered(const void* memory) const;
  std::vector<std::string> Leaks() const;

 private:
  void Join(World& world, Communicator& communicator);
  ncclResult_t Submit(World& world, Communicator& communicator, std::vector<Call> calls);
  void Launch(World& world, Communicator& communicator);
  void AbortNow(World& world, Communicator& communicator);

  int ids_made_ = 0;
  std::map<std::string, std::shared_ptr<Formation>> formations_;  // by id
  std::map<ncclComm_t, std::unique_ptr<Communicator>> communicators_;
};

}  // namespace lockstep::fake_nccl

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_COMMUNICATORS_H_
