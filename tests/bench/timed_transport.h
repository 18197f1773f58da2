// TimedTransport: passes every call on and notes when those of a step began and
// ended, so that a step can be taken apart without a change to the product.
//
// As a Transport: used by one thread, but for Abort().
#ifndef LOCKSTEP_TESTS_BENCH_TIMED_TRANSPORT_H_
#define LOCKSTEP_TESTS_BENCH_TIMED_TRANSPORT_H_

#include <chrono>
#include <memory>
#include <utility>

#include "worker/transport/transport.h"

namespace lockstep {

using BenchClock = std::chrono::steady_clock;

struct Span {
  BenchClock::time_point begin;
  BenchClock::time_point end;
};

// Notes its own life.
class Note {
 public:
  explicit Note(Span& span) : span_(span) { span_.begin = BenchClock::now(); }
  ~Note() { span_.end = BenchClock::now(); }

 private:
  Span& span_;
};

class TimedTransport final : public Transport {
 public:
  explicit TimedTransport(std::unique_ptr<Transport> base) : base_(std::move(base)) {}

  int rank() const override { return base_->rank(); }
  int world_size() const override { return base_->world_size(); }
  absl::Status Exchange(std::span<const Transfer> transfers) override {
    return base_->Exchange(transfers);
  }
  absl::StatusOr<Arena> Allocate(ArenaUse use, std::int64_t elements) override {
    return base_->Allocate(use, elements);
  }
  absl::Status ReduceToOwners(const Arena& gradients, std::span<const Shard> shards,
                              float weight) override {
    const Note note(reduce_);
    return base_->ReduceToOwners(gradients, shards, weight);
  }
  absl::Status BroadcastFromOwners(const Arena& parameters,
                                   std::span<const Shard> shards) override {
    const Note note(spread_);
    return base_->BroadcastFromOwners(parameters, shards);
  }
  absl::StatusOr<Agreement> Agree(const ControlWord& mine) override {
    const Note note(agree_);
    return base_->Agree(mine);
  }
  void Abort(absl::Status why) override { base_->Abort(std::move(why)); }

  // Of the last call each.
  const Span& reduce() const { return reduce_; }
  const Span& agree() const { return agree_; }
  const Span& spread() const { return spread_; }

 private:
  const std::unique_ptr<Transport> base_;
  Span reduce_;
  Span agree_;
  Span spread_;
};

// Makes timed transports of another factory's, and remembers the last one.
class TimedFactory final : public TransportFactory {
 public:
  explicit TimedFactory(std::unique_ptr<TransportFactory> base) : base_(std::move(base)) {}

  std::string name() const override { return base_->name(); }
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override {
    auto made = base_->Create(group, exchange);
    if (!made.ok()) return made.status();
    auto timed = std::make_unique<TimedTransport>(*std::move(made));
    last_ = timed.get();
    return timed;
  }

  TimedTransport* last() const { return last_; }

 private:
  const std::unique_ptr<TransportFactory> base_;
  TimedTransport* last_ = nullptr;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_TIMED_TRANSPORT_H_
