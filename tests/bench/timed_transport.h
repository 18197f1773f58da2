// TimedTransport: notes when the calls of a step began and ended, so that a step can be taken
// apart without a change to the product.
//
// As a Transport: used by one thread, but for Abort().
#ifndef LOCKSTEP_TESTS_BENCH_TIMED_TRANSPORT_H_
#define LOCKSTEP_TESTS_BENCH_TIMED_TRANSPORT_H_

#include <chrono>
#include <span>

#include "worker/engine/forwarding_transport.h"

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

class TimedTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  absl::Status UpdateShards(const Arena& gradients, const Arena& parameters,
                            std::span<const Shard> shards, std::span<const float> weights,
                            const ConsumeSums& update) override {
    const Note note(update_);
    return ForwardingTransport::UpdateShards(
        gradients, parameters, shards, weights,
        [&](std::int64_t begin, std::span<const float> sums) {
          update(begin, sums);
          updated_ = BenchClock::now();
        });
  }
  absl::Status ReduceToOwners(const Arena& gradients, std::span<const Shard> shards,
                              std::span<const float> weights,
                              const ConsumeSums& consume) override {
    const Note note(reduce_);
    return ForwardingTransport::ReduceToOwners(gradients, shards, weights, consume);
  }
  absl::Status Pass(std::span<const Passage> passages) override {
    const Note note(pass_);
    return ForwardingTransport::Pass(passages);
  }
  absl::Status BroadcastFromOwners(const Arena& parameters,
                                   std::span<const Shard> shards) override {
    const Note note(spread_);
    return ForwardingTransport::BroadcastFromOwners(parameters, shards);
  }
  absl::StatusOr<Agreement> Agree(const ControlWord& mine) override {
    const Note note(agree_);
    return ForwardingTransport::Agree(mine);
  }

  // Of the last call each.
  const Span& agree() const { return agree_; }
  const Span& update() const { return update_; }  // of steps in one pass; the others of the rest
  const Span& reduce() const { return reduce_; }
  const Span& pass() const { return pass_; }
  const Span& spread() const { return spread_; }
  // When this rank had made its last update in it.
  BenchClock::time_point updated() const { return updated_; }

 private:
  Span agree_;
  Span update_;
  Span reduce_;
  Span pass_;
  Span spread_;
  BenchClock::time_point updated_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_TIMED_TRANSPORT_H_
