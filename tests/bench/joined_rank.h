// JoinedRank: a module that trains in lockstep with the other ranks of its job,
// and the transport below, timed.
//
// Used by one thread.
#ifndef LOCKSTEP_TESTS_BENCH_JOINED_RANK_H_
#define LOCKSTEP_TESTS_BENCH_JOINED_RANK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/bench/rank_bench.h"
#include "tests/bench/timed_transport.h"
#include "worker/session/session.h"

namespace lockstep {

class JoinedRank {
 public:
  // `module` outlives it. Errors: as Session::Join().
  static absl::StatusOr<std::unique_ptr<JoinedRank>> Join(const RankConfig& config,
                                                          torch::nn::Module& module);

  Session& session() { return *session_; }
  TimedTransport& transport() { return *transport_; }

 private:
  JoinedRank() = default;

  std::unique_ptr<TransportFactory> factory_;  // outlives the session
  TimedTransport* transport_ = nullptr;        // the session's
  std::unique_ptr<Session> session_;
};

// "rank-03": names sort as ranks do.
std::string RankName(int rank);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_JOINED_RANK_H_
