// What `./lockstep bench` was asked to measure.
#ifndef LOCKSTEP_TESTS_BENCH_BENCH_OPTIONS_H_
#define LOCKSTEP_TESTS_BENCH_BENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tests/bench/early_exit.h"

namespace lockstep {

struct BenchOptions {
  std::vector<std::string> benches;  // each once; "cost" only by itself
  int ranks = 2;
  std::string transport = "shm";
  int replicas = 1;  // of the optimizer's state
  bool peers = false;
  std::string json;  // file that takes the report; empty: none
  int repeat = 30;   // counted repetitions of each case
  bool tiny = false;

  bool is_cost() const { return benches == std::vector<std::string>{"cost"}; }

  friend bool operator==(const BenchOptions&, const BenchOptions&) = default;
};

// How large the measured things are.
struct BenchSizes {
  std::int64_t matrices = 5;
  std::int64_t side = 2048;  // of each matrix
  std::int64_t broadcast_elements = 16 << 20;
  std::int64_t agreements = 1000;  // in one repetition
  std::int64_t cold_bytes = 8 << 20;
  std::int64_t train_batch = 32;  // images of each rank in each step
  std::int64_t train_steps = 5;   // in one repetition

  std::int64_t step_elements() const { return matrices * side * side; }
};
BenchSizes SizesOf(const BenchOptions& options);

// `arguments` without the program's name.
std::variant<BenchOptions, EarlyExit> ParseBenchOptions(std::vector<std::string> arguments);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_BENCH_OPTIONS_H_
