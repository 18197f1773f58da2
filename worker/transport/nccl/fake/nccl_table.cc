// NCCL's half of the table.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/transport/nccl/fake/world.h"
#include "worker/transport/nccl/nccl_functions.h"

namespace lockstep::fake_nccl {
namespace {

enum class Rule {
  kAnyThread,  // at any time before the communicator is aborted
  kAnyTime,    // so, by one thread at a time
  kPolled,     // so, and not while the call before is still in progress
};

// One call on a communicator.
template <typename Body>
ncclResult_t OnCommunicator(const char* function, ncclComm_t handle, Rule rule, Body body) {
  const std::shared_ptr<World> world = ActiveWorld();
  Communicator* entered = nullptr;
  const auto device_of = [&](World& world) {
    Communicator* found = world.communicators.Find(handle);
    if (found == nullptr) return world.Thread().device;
    if (rule != Rule::kAnyThread) {
      entered = found;
      if (++entered->threads_inside > 1) {
        world.Violate(found->device, absl::StrCat(function, " while another thread is inside of a "
                                                            "call on the communicator"));
      }
    }
    return found->device;
  };
  const auto checked_body = [&](World& world, int device) {
    const auto fail = [&](ncclResult_t result, const std::string& text) {
      world.Violate(device, absl::StrCat(function, " ", text));
      return result;
    };
    Communicator* communicator = world.communicators.Find(handle);
    if (communicator == nullptr) return fail(ncclInvalidArgument, "on what is no communicator");
    if (communicator->aborted) {
      return fail(ncclInvalidArgument, "on a communicator that was aborted");
    }
    if (rule == Rule::kPolled) {
      if (communicator->error_was_seen) {
        return fail(communicator->error, "on a communicator that has reported an error");
      }
      if (communicator->busy) {
        return fail(ncclInvalidArgument, "while the call before is still in progress");
      }
    }
    return body(world, *communicator);
  };
  const auto result = Enter<ncclResult_t>(world, function, device_of, checked_body);
  if (entered != nullptr) {
    MutexLock lock(&world->mu);
    --entered->threads_inside;
  }
  return result;
}

ncclResult_t GetVersion(int* version) {
  return EnterOnThread<ncclResult_t>("GetVersion", [&](World& world, int) {
    *version = world.options.nccl_version;
    return ncclSuccess;
  });
}

ncclResult_t GetUniqueId(ncclUniqueId* id) {
  return EnterOnThread<ncclResult_t>(
      "GetUniqueId", [&](World& world, int) { return world.communicators.MakeId(world, id); });
}

ncclResult_t CommInitRankConfig(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank,
                                ncclConfig_t* config) {
  return EnterOnThread<ncclResult_t>("CommInitRankConfig", [&](World& world, int) {
    return world.communicators.Init(world, handle, ranks, id, rank, config);
  });
}

ncclResult_t CommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  return OnCommunicator("CommGetAsyncError", handle, Rule::kAnyTime,
                        [&](World& world, Communicator& communicator) {
                          return world.communicators.Poll(world, communicator, error);
                        });
}

ncclResult_t CommAbort(ncclComm_t handle) {
  return OnCommunicator("CommAbort", handle, Rule::kAnyThread,
                        [&](World& world, Communicator& communicator) {
                          return world.communicators.Abort(world, communicator);
                        });
}

ncclResult_t CommRegister(ncclComm_t handle, void* buffer, std::size_t bytes, void** registered) {
  return OnCommunicator("CommRegister", handle, Rule::kPolled,
                        [&](World& world, Communicator& communicator) {
                          return world.communicators.Register(world, communicator, buffer, bytes,
                                                              registered);
                        });
}

ncclResult_t MemAlloc(void** memory, std::size_t bytes) {
  return EnterOnThread<ncclResult_t>("MemAlloc", [&](World& world, int device) {
    *memory = world.memory.Allocate(Memory::Kind::kNccl, device, bytes);
    return *memory == nullptr ? ncclUnhandledCudaError : ncclSuccess;
  });
}

ncclResult_t MemFree(void* memory) {
  return EnterOnThread<ncclResult_t>("MemFree", [&](World& world, int device) {
    if (memory == nullptr) return ncclSuccess;
    const std::optional<std::string> why =
        world.FreeWhenIdle("MemFree", Memory::Kind::kNccl, memory);
    if (!why.has_value()) return ncclSuccess;
    world.Violate(device, *why);
    return ncclInvalidArgument;
  });
}

ncclResult_t GroupStart() {
  return EnterOnThread<ncclResult_t>(
      "GroupStart", [](World& world, int) { return world.communicators.StartGroup(world); });
}

ncclResult_t GroupEnd() {
  return EnterOnThread<ncclResult_t>("GroupEnd", [](World& world, int device) {
    if (world.Thread().group.depth == 0) {
      world.Violate(device, "GroupEnd without GroupStart");
      return ncclInvalidUsage;
    }
    return world.communicators.EndGroup(world, device);
  });
}

ncclResult_t Operate(const char* function, const Operation& operation, ncclComm_t handle,
                     cudaStream_t stream) {
  return OnCommunicator(function, handle, Rule::kPolled,
                        [&](World& world, Communicator& communicator) {
                          return world.communicators.Operate(world, communicator, stream,
                                                             operation);
                        });
}

ncclResult_t Broadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                       int root, ncclComm_t comm, cudaStream_t stream) {
  return Operate("Broadcast",
                 {.kind = Operation::Kind::kBroadcast,
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .peer = root},
                 comm, stream);
}

ncclResult_t AllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                       ncclComm_t comm, cudaStream_t stream) {
  return Operate("AllGather",
                 {.kind = Operation::Kind::kAllGather,
                  .send = send,
                  .receive = receive,
                  .count = count,
                  .type = type},
                 comm, stream);
}

ncclResult_t Send(const void* send, std::size_t count, ncclDataType_t type, int peer,
                  ncclComm_t comm, cudaStream_t stream) {
  return Operate("Send",
                 {.kind = Operation::Kind::kSend,
                  .send = send,
                  .count = count,
                  .type = type,
                  .peer = peer},
                 comm, stream);
}

ncclResult_t Recv(void* receive, std::size_t count, ncclDataType_t type, int peer,
                  ncclComm_t comm, cudaStream_t stream) {
  return Operate("Recv",
                 {.kind = Operation::Kind::kRecv,
                  .receive = receive,
                  .count = count,
                  .type = type,
                  .peer = peer},
                 comm, stream);
}

const char* GetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {
      "no error",      "unhandled cuda error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage", "remote process exited or there was a network error",
      "NCCL operation in progress", "timeout"};
  const bool known = result >= 0 && result < ncclNumResults;
  return known ? kTexts[result] : "unknown result code";
}

const char* GetLastError(ncclComm_t comm) {
  thread_local std::string text;
  const std::shared_ptr<World> world = ActiveWorld();
  if (world == nullptr) return "no FakeNccl lives";
  MutexLock lock(&world->mu);
  text = world->last_error;
  return text.c_str();
}

}  // namespace

void Keep(World& world, ncclResult_t result) {
  Group& group = world.Thread().group;
  if (group.depth > 0 && result != ncclSuccess && result != ncclInProgress) group.error = result;
}

void FillNcclFunctions(NcclApi& api) {
#define LOCKSTEP_FILL(member, symbol) api.member = &member;
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_FILL)
#undef LOCKSTEP_FILL
}

}  // namespace lockstep::fake_nccl
