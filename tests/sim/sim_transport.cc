// SimTransport: CheckedTransport over the simulated network, each word and each tensor a message
// of its own, so that ranks can be told apart by what they have got when something fails.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "tests/sim/fabric.h"
#include "worker/combine/combine.h"
#include "worker/memory/host_memory.h"
#include "worker/transport/checked_transport.h"

namespace lockstep::sim {
namespace {

std::string BytesOf(const void* data, std::int64_t size) {
  return std::string(static_cast<const char*>(data), static_cast<std::size_t>(size));
}

class SimTransport final : public CheckedTransport {
 public:
  SimTransport(const Group& group, std::string session, Fabric* fabric, Process* process)
      : CheckedTransport(group),
        session_(std::move(session)),
        fabric_(*fabric),
        process_(process) {
    for (const std::string& peer : group.members) {
      Fabric::Edge& way = fabric_.edge(session_, peer, me());
      way.receiver = process_;
      ways_.push_back(&way);
    }
  }

  absl::Status Form() { return ExchangeCalls({}).status(); }

 private:
  const std::string& me() const { return group().members[rank()]; }

  void Send(int to, std::string bytes) {
    fabric_.Send(session_, me(), group().members[to], std::move(bytes));
  }

  // One message of each of `ranks`, in their order.
  absl::StatusOr<std::vector<std::string>> Receive(const std::vector<int>& ranks) {
    const auto missing = [&](int r) { return ways_[r]->came.empty(); };
    const auto lost = [&](int r) { return missing(r) && !ways_[r]->closed.ok(); };
    const bool decided = fabric_.scheduler().Await(
        process_, process_->Now() + group().deadline, [&] {
          return !interrupted_.ok() || std::ranges::any_of(ranks, lost) ||
                 std::ranges::none_of(ranks, missing);
        });
    LOCKSTEP_RETURN_IF_ERROR(interrupted_);
    std::vector<std::string> messages;
    if (std::ranges::none_of(ranks, missing)) {
      for (const int r : ranks) {
        messages.push_back(std::move(ways_[r]->came.front()));
        ways_[r]->came.pop_front();
      }
      return messages;
    }
    std::vector<std::string> names;
    for (const int r : ranks) {
      if (lost(r)) return ways_[r]->closed;
      if (missing(r)) names.push_back(group().members[r]);
    }
    return absl::DeadlineExceededError(absl::StrCat(
        decided ? "undecided: " : "nothing came within the deadline from ", ListNames(names)));
  }

  std::vector<int> Peers() const {
    std::vector<int> peers;
    for (int r = 0; r < world_size(); ++r) {
      if (r != rank()) peers.push_back(r);
    }
    return peers;
  }

  // Of each rank what it sent to this one; of this one `mine`.
  absl::StatusOr<std::vector<std::string>> AllOf(std::string mine) {
    const std::vector<int> peers = Peers();
    LOCKSTEP_ASSIGN_OR_RETURN(std::vector<std::string> all, Receive(peers));
    all.insert(all.begin() + rank(), std::move(mine));
    return all;
  }

  absl::StatusOr<std::vector<Call>> ExchangeCalls(const Call& mine) override {
    const std::string word = BytesOf(&mine, sizeof(mine));
    for (const int peer : Peers()) Send(peer, word);
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> words, AllOf(word));
    std::vector<Call> calls(words.size());
    for (std::size_t r = 0; r < words.size(); ++r) {
      if (words[r].size() != sizeof(Call)) return OutOfStep(static_cast<int>(r));
      std::memcpy(&calls[r], words[r].data(), sizeof(Call));
    }
    return calls;
  }

  absl::Status OutOfStep(int r) const {
    return absl::InternalError(absl::StrCat("what came from ", group().members[r],
                                            " is not what was expected"));
  }

  absl::Status MoveBroadcast(std::span<const TensorView> views, int root) override {
    if (rank() == root) {
      std::string bytes;
      for (const TensorView& view : views) bytes += BytesOf(view.data, view.bytes());
      for (const int peer : Peers()) Send(peer, bytes);
      return absl::OkStatus();
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> came, Receive({root}));
    std::int64_t at = 0;
    for (const TensorView& view : views) {
      if (at + view.bytes() > static_cast<std::int64_t>(came[0].size())) return OutOfStep(root);
      if (view.bytes() > 0) std::memcpy(view.data, came[0].data() + at, view.bytes());
      at += view.bytes();
    }
    return absl::OkStatus();
  }

  absl::Status MoveAllReduce(std::span<const TensorView> views, ReduceOp op,
                             std::span<const double> weights) override {
    for (const TensorView& view : views) {
      const std::string mine = BytesOf(view.data, view.bytes());
      for (const int peer : Peers()) Send(peer, mine);
      LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all, AllOf(mine));
      std::vector<const std::byte*> sources;
      for (std::size_t r = 0; r < all.size(); ++r) {
        if (all[r].size() != mine.size()) return OutOfStep(static_cast<int>(r));
        sources.push_back(reinterpret_cast<const std::byte*>(all[r].data()));
      }
      Reduce(view.spec.dtype, op, weights, sources, view.data, view.spec.elements());
    }
    return absl::OkStatus();
  }

  absl::Status MovePassages(std::span<const Passage> passages) override {
    for (const Passage& passage : passages) {
      const std::int64_t bytes = passage.view.bytes();
      if (bytes > 0 && passage.from == rank()) Send(passage.to, BytesOf(passage.view.data, bytes));
    }
    for (const Passage& passage : passages) {
      const std::int64_t bytes = passage.view.bytes();
      if (bytes == 0 || passage.to != rank()) continue;
      LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> came, Receive({passage.from}));
      if (static_cast<std::int64_t>(came[0].size()) != bytes) return OutOfStep(passage.from);
      std::memcpy(passage.view.data, came[0].data(), bytes);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Arena> MakeArena(int index, ArenaUse use, DType dtype,
                                  std::int64_t elements) override {
    const bool shared = use == ArenaUse::kParameters && fabric_.options().shares_parameters;
    const std::int64_t bytes = elements * ElementBytes(dtype);
    if (shared) {
      LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<HostMemory> memory,
                                fabric_.Shared(session_, index, bytes));
      memory_.push_back(std::move(memory));
    } else {
      LOCKSTEP_ASSIGN_OR_RETURN(HostMemory memory, HostMemory::Allocate(bytes));
      memory_.push_back(std::make_shared<HostMemory>(std::move(memory)));
    }
    arenas_.push_back({.dtype = dtype,
                       .data = memory_.back()->data(),
                       .elements = elements,
                       .shared = shared});
    return arenas_.back();
  }

  absl::Status MoveToOwners(int index, std::span<const Shard> shards,
                            std::span<const float> weights, const ConsumeSums& consume) override {
    const Arena& arena = arenas_[index];
    const auto part = [&](int owner) {
      return BytesOf(arena.at(shards[owner].begin),
                     shards[owner].elements() * ElementBytes(arena.dtype));
    };
    for (const int peer : Peers()) Send(peer, part(peer));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all, AllOf(part(rank())));
    std::vector<const std::byte*> sources;
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (all[r].size() != all[rank()].size()) return OutOfStep(static_cast<int>(r));
      sources.push_back(reinterpret_cast<const std::byte*>(all[r].data()));
    }
    WeightedSum(arena.dtype, sources, weights, shards[rank()].elements(), consume);
    return absl::OkStatus();
  }

  void Interrupt(const absl::Status& why) override {
    interrupted_ = why;
    if (!process_->alive()) return;
    fabric_.scheduler().Wake(process_);
    if (!fabric_.options().tells_peers || !fabric_.options().fences) return;
    for (const int peer : Peers()) {
      fabric_.Close(session_, me(), group().members[peer],
                    absl::UnavailableError(absl::StrCat(me(), " closed its connection")));
    }
  }

  const std::string session_;
  Fabric& fabric_;
  Process* const process_;
  std::vector<Fabric::Edge*> ways_;  // by rank: from it to this one
  absl::Status interrupted_;
  std::vector<Arena> arenas_;
  std::vector<std::shared_ptr<HostMemory>> memory_;  // by arena
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> SimTransportFactory::Create(
    const Group& group, const ExchangeEndpoint& exchange) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(group));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::string session,
      exchange(group.rank == 0 ? std::optional<std::string>(fabric_->NewSession()) : std::nullopt));
  auto transport = std::make_unique<SimTransport>(group, session, fabric_, process_);
  if (group.on_forming) group.on_forming(transport.get());
  const absl::Status formed = transport->Form();
  if (!formed.ok()) {
    if (group.on_forming) group.on_forming(nullptr);
    return formed;
  }
  return transport;
}

}  // namespace lockstep::sim
