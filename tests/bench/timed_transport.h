// TimedTransport: notes when the calls of a step began and ended, so that a step can be taken apart without a change to the product.
//
// As a Transport: used by one thread, but for Abort().
#ifndef LOCKSTEP_TESTS_BENCH_TIMED_TRANSPORT_H_
#define LOCKSTEP_TESTS_BENCH_TIMED_TRANSPORT_H_

#include <chrono>
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

  absl::Status ReduceToOwners(const Arena& gradients, std::span<const Shard> shards,
                              float weight) override {
    const Note note(reduce_);
    return ForwardingTransport::ReduceToOwners(gradients, shards, weight);
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
  const Span& reduce() const { return reduce_; }
  const Span& agree() const { return agree_; }
  const Span& spread() const { return spread_; }

 private:
  Span reduce_;
  Span agree_;
  Span spread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_TIMED_TRANSPORT_H_
