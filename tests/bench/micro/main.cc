// ./lockstep bench micro: takes Google Benchmark's flags, --benchmark_filter=REGEX and
// --benchmark_format=json among them.
#include "benchmark/benchmark.h"

BENCHMARK_MAIN();
