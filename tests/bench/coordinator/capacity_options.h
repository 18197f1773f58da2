// What `./lockstep bench coordinator` was asked to measure. Pure values.
#ifndef LOCKSTEP_TESTS_BENCH_COORDINATOR_CAPACITY_OPTIONS_H_
#define LOCKSTEP_TESTS_BENCH_COORDINATOR_CAPACITY_OPTIONS_H_

#include <string>
#include <variant>
#include <vector>

#include "tests/bench/early_exit.h"

namespace lockstep {

struct CapacityOptions {
  std::vector<int> workers = {100, 1000, 5000};
  std::vector<std::string> tls = {"off", "on"};
  int workers_per_connection = 100;
  int seconds = 10;   // of heartbeats
  std::string store;  // folder that takes stores, logs and certificates; empty: a temporary one
  std::string json;   // file that takes the report; empty: none

  friend bool operator==(const CapacityOptions&, const CapacityOptions&) = default;
};

// `arguments` without the program's name.
std::variant<CapacityOptions, EarlyExit> ParseCapacityOptions(
    std::vector<std::string> arguments);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_COORDINATOR_CAPACITY_OPTIONS_H_
