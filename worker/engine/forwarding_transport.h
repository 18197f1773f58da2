// ForwardingTransport: passes every call on. Tests derive from it and change one.
#ifndef LOCKSTEP_WORKER_ENGINE_FORWARDING_TRANSPORT_H_
#define LOCKSTEP_WORKER_ENGINE_FORWARDING_TRANSPORT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "worker/transport/transport.h"

namespace lockstep {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> base) : base_(std::move(base)) {}

  int rank() const override { return base_->rank(); }
  int world_size() const override { return base_->world_size(); }
  absl::Status Exchange(std::span<const Transfer> transfers) override {
    return base_->Exchange(transfers);
  }
  absl::Status Pass(std::span<const Passage> passages) override { return base_->Pass(passages); }
  absl::StatusOr<Arena> Allocate(ArenaUse use, DType dtype, std::int64_t elements) override {
    return base_->Allocate(use, dtype, elements);
  }
  absl::Status ReduceToOwners(const Arena& gradients, std::span<const Shard> shards,
                              std::span<const float> weights,
                              const ConsumeSums& consume) override {
    return base_->ReduceToOwners(gradients, shards, weights, consume);
  }
  absl::Status BroadcastFromOwners(const Arena& parameters,
                                   std::span<const Shard> shards) override {
    return base_->BroadcastFromOwners(parameters, shards);
  }
  absl::Status UpdateShards(const Arena& gradients, const Arena& parameters,
                            std::span<const Shard> shards, std::span<const float> weights,
                            const ConsumeSums& update) override {
    return base_->UpdateShards(gradients, parameters, shards, weights, update);
  }
  absl::Status BeginReduction(std::span<const ArenaShards> parts, float weight) override {
    return base_->BeginReduction(parts, weight);
  }
  void GradientsReady(const Arena& gradients, std::int64_t begin, std::int64_t end) override {
    base_->GradientsReady(gradients, begin, end);
  }
  void DropReduction() override { base_->DropReduction(); }
  absl::StatusOr<Agreement> Agree(const ControlWord& mine) override { return base_->Agree(mine); }
  TrafficCounters traffic() const override { return base_->traffic(); }
  void Abort(absl::Status why) override { base_->Abort(std::move(why)); }

 private:
  const std::unique_ptr<Transport> base_;
};

// Wraps what another factory makes. Thread-safe if `wrap` is.
class WrappingFactory final : public TransportFactory {
 public:
  using Wrap = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>;

  WrappingFactory(TransportFactory* base, Wrap wrap) : base_(base), wrap_(std::move(wrap)) {}
  std::string name() const override { return base_->name(); }
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override {
    auto transport = base_->Create(group, exchange);
    if (!transport.ok()) return transport.status();
    return wrap_(*std::move(transport));
  }

 private:
  TransportFactory* const base_;
  const Wrap wrap_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_FORWARDING_TRANSPORT_H_
