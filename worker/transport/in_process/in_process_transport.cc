#include "worker/transport/in_process/in_process_transport.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/combine/combine.h"
#include "worker/memory/host_memory.h"
#include "worker/transport/checked_transport.h"

namespace lockstep {
namespace {

using Views = std::span<const TensorView>;

class InProcessTransport final : public CheckedTransport {
 public:
  InProcessTransport(Group group, std::shared_ptr<Hub> hub)
      : CheckedTransport(std::move(group)), hub_(std::move(hub)) {}

  absl::Status Form() {
    StartDeadline();
    int nothing = 0;
    return Meet(&nothing, [](std::span<int* const>) {});
  }

 private:
  // The payloads of all ranks are of one type, as all are in the same operation.
  template <typename T, typename Act>
  absl::Status Meet(T* payload, Act act) {
    return hub_->Meet(rank(), payload, TimeLeft(), [&](std::span<void* const> payloads) {
      std::vector<T*> typed;
      for (void* each : payloads) typed.push_back(static_cast<T*>(each));
      act(std::span<T* const>(typed));
    });
  }

  absl::StatusOr<std::vector<Call>> ExchangeCalls(const Call& mine) override {
    struct Exchange {
      Call call;
      std::vector<Call> all;
    };
    Exchange exchange = {.call = mine};
    LOCKSTEP_RETURN_IF_ERROR(Meet(&exchange, [](std::span<Exchange* const> ranks) {
      std::vector<Call> all;
      for (const Exchange* each : ranks) all.push_back(each->call);
      for (Exchange* each : ranks) each->all = all;
    }));
    return std::move(exchange.all);
  }

  absl::Status MoveBroadcast(Views views, int root) override {
    return Meet(&views, [root](std::span<Views* const> ranks) {
      for (std::size_t i = 0; i < ranks[root]->size(); ++i) {
        const TensorView& source = (*ranks[root])[i];
        for (const Views* each : ranks) {
          if (source.bytes() > 0 && (*each)[i].data != source.data) {
            std::memcpy((*each)[i].data, source.data, source.bytes());
          }
        }
      }
    });
  }

  absl::Status MoveAllReduce(Views views, ReduceOp op, std::span<const double> weights) override {
    return Meet(&views, [op, weights](std::span<Views* const> ranks) {
      for (std::size_t i = 0; i < ranks[0]->size(); ++i) {
        const TensorView& first = (*ranks[0])[i];
        std::vector<const std::byte*> sources;
        for (const Views* each : ranks) sources.push_back((*each)[i].data);
        Reduce(first.spec.dtype, op, weights, sources, first.data, first.spec.elements());
        for (const Views* each : ranks.subspan(1)) {
          if (first.bytes() > 0) std::memcpy((*each)[i].data, first.data, first.bytes());
        }
      }
    });
  }

  absl::StatusOr<Arena> MakeArena(int index, ArenaUse use, DType dtype,
                                  std::int64_t elements) override {
    LOCKSTEP_ASSIGN_OR_RETURN(HostMemory memory,
                              HostMemory::Allocate(elements * ElementBytes(dtype)));
    arenas_.push_back({.dtype = dtype, .data = memory.data(), .elements = elements});
    memory_.push_back(std::move(memory));
    return arenas_.back();
  }

  absl::Status MoveToOwners(int arena, std::span<const Shard> shards,
                            std::span<const float> weights,
                            const ConsumeSums& consume) override {
    struct Reduction {
      const Arena* arena;
      const ConsumeSums* consume;
    };
    Reduction mine = {&arenas_[arena], &consume};
    return Meet(&mine, [&](std::span<Reduction* const> ranks) {
      for (std::size_t owner = 0; owner < ranks.size(); ++owner) {
        std::vector<const std::byte*> sources;
        for (const Reduction* each : ranks) sources.push_back(each->arena->at(shards[owner].begin));
        WeightedSum(mine.arena->dtype, sources, weights, shards[owner].elements(),
                    *ranks[owner]->consume);
      }
    });
  }

  void Interrupt(const absl::Status& why) override { hub_->Break(why); }

  const std::shared_ptr<Hub> hub_;
  std::vector<Arena> arenas_;
  std::vector<HostMemory> memory_;  // by arena
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> InProcessFactory::Create(
    const Group& group, const ExchangeEndpoint& exchange) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(group));
  LOCKSTEP_RETURN_IF_ERROR(
      exchange(group.rank == 0 ? std::optional<std::string>("in-process") : std::nullopt)
          .status());
  std::shared_ptr<Hub> hub;
  {
    MutexLock lock(&mu_);
    std::shared_ptr<Hub>& slot = hubs_[group.epoch];
    if (slot == nullptr) slot = std::make_shared<Hub>(group.members);
    hub = slot;
    // Only the newest epochs are met for; ids grow.
    constexpr std::size_t kMaxHubs = 16;
    if (hubs_.size() > kMaxHubs) hubs_.erase(hubs_.begin());
  }
  if (hub->members() != group.members) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks disagree on the members of epoch ", group.epoch.value()));
  }
  auto transport = std::make_unique<InProcessTransport>(group, std::move(hub));
  LOCKSTEP_RETURN_IF_ERROR(transport->Form());
  return transport;
}

}  // namespace lockstep
