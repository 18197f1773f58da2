// RankBench: what one rank does in one bench, apart from who tells it when.
//
//   for each repetition: Prepare (untimed), barrier, Run (timed), Finish (untimed)
//
// Used by one thread.
#ifndef LOCKSTEP_TESTS_BENCH_RANK_BENCH_H_
#define LOCKSTEP_TESTS_BENCH_RANK_BENCH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/bench/bench_options.h"
#include "tests/bench/shared_memory.h"

namespace lockstep {

struct RankConfig {
  int rank = 0;
  int ranks = 0;
  std::string bench;  // as BenchOptions has it, or "probe"
  std::string coordinator;
  std::string job;
  std::string transport;
  BenchSizes sizes;
  std::string data;  // folder of MNIST's files
  SharedMemory* memory = nullptr;
};

using Nanos = std::int64_t;

struct Repetition {
  Nanos total = 0;
  std::map<std::string, Nanos> parts;
};

class RankBench {
 public:
  virtual ~RankBench() = default;

  virtual absl::Status Prepare(const std::string& name) { return absl::OkStatus(); }
  virtual absl::StatusOr<Repetition> Run(const std::string& name) = 0;
  virtual absl::Status Finish(const std::string& name) { return absl::OkStatus(); }
  // Ends it in order; the rank's account of it, such as the memory it held, or null.
  virtual nlohmann::json Leave() { return nullptr; }
};

// Collective: joins the others where the bench needs them.
absl::StatusOr<std::unique_ptr<RankBench>> MakeRankBench(const RankConfig& config);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_RANK_BENCH_H_
