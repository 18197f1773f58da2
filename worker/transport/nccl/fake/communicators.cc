#include "worker/transport/nccl/fake/communicators.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "worker/transport/nccl/fake/world.h"

namespace lockstep::fake_nccl {
namespace {

ncclResult_t Fail(World& world, int device, ncclResult_t result, const std::string& text) {
  world.Violate(device, text);
  return result;
}

std::string Key(const ncclUniqueId& id) { return std::string(id.internal, sizeof(id.internal)); }

}  // namespace

ncclResult_t Communicators::MakeId(World& world, ncclUniqueId* id) {
  // All bytes count, so that one that is cut short is not recognised.
  std::memset(id->internal, 'i', sizeof(id->internal));
  const std::string text = absl::StrCat("fake ", world.number, " ", ++ids_made_, " ");
  std::memcpy(id->internal, text.data(), text.size());
  formations_[Key(*id)] = std::make_shared<Formation>();
  return ncclSuccess;
}

ncclResult_t Communicators::Init(World& world, ncclComm_t* handle, int ranks,
                                 const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  const int device = world.Thread().device;
  const auto fail = [&](ncclResult_t result, const std::string& text) {
    return Fail(world, device, result, absl::StrCat("CommInitRankConfig: ", text));
  };
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  if (config == nullptr || config->size != initial.size || config->magic != initial.magic ||
      config->version != initial.version) {
    return fail(ncclInvalidArgument, "the configuration is not made by NCCL_CONFIG_INITIALIZER");
  }
  if (config->blocking != 0) {
    return fail(ncclInvalidUsage, "blocking is not 0: what blocks cannot be aborted");
  }
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return fail(ncclInvalidArgument, absl::StrCat("rank ", rank, " of ", ranks));
  }
  const auto found = formations_.find(Key(id));
  if (found == formations_.end()) return fail(ncclInvalidArgument, "the id is none of GetUniqueId");
  Formation& formation = *found->second;
  if (formation.members.empty()) formation.members.resize(ranks);
  if (formation.members.size() != static_cast<std::size_t>(ranks)) {
    formation.error = ncclInvalidUsage;
    return fail(ncclInvalidUsage, absl::StrCat(ranks, " ranks, where another rank said ",
                                               formation.members.size()));
  }
  if (formation.members[rank] != nullptr) {
    return fail(ncclInvalidUsage, absl::StrCat("the id was used before by rank ", rank));
  }
  auto created = std::make_unique<Communicator>();
  Communicator* const communicator = created.get();
  communicator->device = device;
  communicator->rank = rank;
  communicator->ranks = ranks;
  communicator->formation = found->second;
  formation.members[rank] = communicator;
  *handle = reinterpret_cast<ncclComm_t>(communicator);
  communicators_[*handle] = std::move(created);
  Group& group = world.Thread().group;
  group.joins.push_back(communicator);
  return group.depth > 0 ? ncclSuccess : EndGroup(world, device);
}

void Communicators::Join(World& world, Communicator& communicator) {
  Formation& formation = *communicator.formation;
  communicator.joined = true;
  communicator.polls_left = world.options.polls;
  for (const Communicator* member : formation.members) {
    if (member == nullptr || !member->joined || member->aborted) return;
  }
  formation.complete = true;
  for (const Communicator* a : formation.members) {
    for (const Communicator* b : formation.members) {
      // NCCL refuses several ranks on one GPU.
      if (a == b || a->device != b->device) continue;
      formation.error = ncclInvalidUsage;
      world.last_error = absl::StrCat("several ranks use GPU ", a->device);
    }
  }
}

ncclResult_t Communicators::Poll(World& world, Communicator& communicator, ncclResult_t* error) {
  const std::optional<int> injected = world.calls.AsyncError(communicator.device);
  if (injected.has_value()) communicator.error = static_cast<ncclResult_t>(*injected);
  Formation& formation = *communicator.formation;
  if (communicator.error == ncclSuccess) communicator.error = formation.error;
  if (communicator.error != ncclSuccess) {
    communicator.error_was_seen = true;
    *error = communicator.error;
    return ncclSuccess;
  }
  *error = ncclInProgress;
  if (!formation.complete) return ncclSuccess;
  const bool connects = std::all_of(
      communicator.in_progress.begin(), communicator.in_progress.end(), [&](const Call& call) {
        return call.operation->count == 0 || formation.matching.HavePartnersCome(*call.operation);
      });
  if (world.options.connects_at_first_use && !connects) return ncclSuccess;
  if (communicator.polls_left > 0) {
    --communicator.polls_left;
    return ncclSuccess;
  }
  Launch(world, communicator);
  communicator.busy = false;
  *error = ncclSuccess;
  return ncclSuccess;
}

void Communicators::Launch(World& world, Communicator& communicator) {
  if (communicator.in_progress.empty()) return;
  const std::vector<Call> calls = std::exchange(communicator.in_progress, {});
  Stream& stream = *calls[0].stream;
  --stream.unlaunched;
  // The world keeps communicators for as long as it has streams.
  world.streams.Enqueue(world, stream, [calls, &communicator](World& world) {
    if (communicator.aborted) return;
    for (const Call& call : calls) {
      communicator.formation->matching.Reach(world, call.operation.get());
    }
    world.changed.SignalAll();
    const auto done = [](const Call& call) { return call.operation->done; };
    world.Await([&] {
      return communicator.aborted || std::all_of(calls.begin(), calls.end(), done);
    });
  });
}

ncclResult_t Communicators::Operate(World& world, Communicator& communicator, cudaStream_t stream,
                                    Operation operation) {
  Group& group = world.Thread().group;
  operation.rank = communicator.rank;
  operation.ranks = communicator.ranks;
  operation.device = communicator.device;
  std::string why;
  Stream* const on = world.streams.FindStream(world, stream, communicator.device);
  if (on == nullptr) {
    why = "the stream does not exist any more";
  } else if (on->device != communicator.device) {
    why = absl::StrCat("the stream is one of GPU ", on->device);
  } else {
    why = WhyInvalid(operation).value_or("");
  }
  if (why.empty() && operation.count > 0) {
    for (const Range& range : Touches(operation)) {
      const auto unusable = world.memory.WhyUnusable(communicator.device, range.begin, range.bytes);
      if (unusable.has_value()) why = *unusable;
    }
  }
  if (!why.empty()) {
    return Fail(world, communicator.device, ncclInvalidArgument,
                absl::StrCat(Describe(operation), ": ", why));
  }
  group.calls.push_back({&communicator, on, std::make_shared<Operation>(operation)});
  return group.depth > 0 ? ncclSuccess : EndGroup(world, communicator.device);
}

ncclResult_t Communicators::StartGroup(World& world) {
  ++world.Thread().group.depth;
  return ncclSuccess;
}

ncclResult_t Communicators::EndGroup(World& world, int device) {
  Group group = std::exchange(world.Thread().group, {});
  if (group.depth > 1) {
    --group.depth;
    world.Thread().group = std::move(group);
    return ncclSuccess;
  }
  if (group.error != ncclSuccess) return group.error;
  if (!group.calls.empty() + !group.joins.empty() + !group.aborts.empty() > 1) {
    return Fail(world, device, ncclInvalidUsage,
                "a group of more than one of: making communicators, using, and aborting them");
  }
  for (Communicator* communicator : group.joins) Join(world, *communicator);
  for (Communicator* communicator : group.aborts) AbortNow(world, *communicator);
  ncclResult_t result = group.joins.empty() ? ncclSuccess : ncclInProgress;
  std::map<Communicator*, std::vector<Call>> calls;
  for (const Call& call : group.calls) calls[call.communicator].push_back(call);
  for (const auto& [communicator, its_calls] : calls) {
    const ncclResult_t submitted = Submit(world, *communicator, its_calls);
    if (result == ncclSuccess || result == ncclInProgress) result = submitted;
  }
  return result;
}

ncclResult_t Communicators::Submit(World& world, Communicator& communicator,
                                   std::vector<Call> calls) {
  if (communicator.aborted) {
    return Fail(world, communicator.device, ncclInvalidArgument,
                "GroupEnd with calls on a communicator that was aborted since");
  }
  std::vector<Operation*> operations;
  for (const Call& call : calls) {
    if (call.stream != calls[0].stream) {
      return Fail(world, communicator.device, ncclInvalidUsage,
                  "a group on more than one stream, which would have to wait for each other");
    }
    for (const Operation* before : operations) {
      const auto conflict = WhyInConflict(*before, *call.operation);
      if (conflict.has_value()) {
        return Fail(world, communicator.device, ncclInvalidUsage,
                    absl::StrCat(Describe(*before), " and ", Describe(*call.operation),
                                 " in one group: ", *conflict));
      }
    }
    operations.push_back(call.operation.get());
  }
  for (const std::string& difference : communicator.formation->matching.Add(operations)) {
    world.Violate(communicator.device, difference);
  }
  ++calls[0].stream->unlaunched;
  communicator.busy = true;
  communicator.polls_left = world.options.polls;
  communicator.in_progress = std::move(calls);
  return ncclInProgress;
}

ncclResult_t Communicators::Abort(World& world, Communicator& communicator) {
  Group& group = world.Thread().group;
  if (group.depth > 0) {
    group.aborts.push_back(&communicator);
  } else {
    AbortNow(world, communicator);
  }
  return ncclSuccess;
}

void Communicators::AbortNow(World& world, Communicator& communicator) {
  communicator.aborted = true;
  world.calls.ForgetAsyncError(communicator.device);
  communicator.registered.clear();
  if (!communicator.in_progress.empty()) --communicator.in_progress[0].stream->unlaunched;
  communicator.in_progress.clear();
  communicator.formation->matching.Abandon(communicator.rank);
  world.changed.SignalAll();
}

ncclResult_t Communicators::Register(World& world, Communicator& communicator, void* buffer,
                                     std::size_t bytes, void** handle) {
  const auto why = world.memory.WhyUnusable(communicator.device, buffer, bytes);
  if (why.has_value()) {
    return Fail(world, communicator.device, ncclInvalidArgument,
                absl::StrCat("CommRegister of ", *why));
  }
  if (world.memory.Find(buffer)->kind != Memory::Kind::kNccl) {
    return Fail(world, communicator.device, ncclInvalidUsage,
                "CommRegister of memory that is not from MemAlloc");
  }
  communicator.registered.push_back({static_cast<std::byte*>(buffer), bytes});
  *handle = buffer;
  return ncclSuccess;
}

Communicator* Communicators::Find(ncclComm_t handle) {
  const auto found = communicators_.find(handle);
  return found == communicators_.end() ? nullptr : found->second.get();
}

bool Communicators::IsRegistered(const void* memory) const {
  for (const auto& [handle, communicator] : communicators_) {
    for (const auto& [begin, bytes] : communicator->registered) {
      if (begin <= memory && memory < begin + bytes) return true;
    }
  }
  return false;
}

std::vector<std::string> Communicators::Leaks() const {
  std::vector<std::string> leaks;
  for (const auto& [handle, communicator] : communicators_) {
    if (communicator->aborted) continue;
    leaks.push_back(absl::StrCat("GPU ", communicator->device, ": the communicator of rank ",
                                 communicator->rank));
  }
  return leaks;
}

}  // namespace lockstep::fake_nccl
