// The owner's update beside the same memory streams without arithmetic: the
// update is bound by memory, so the second is the limit of the first.
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "worker/optim/shard_optimizer.h"

namespace lockstep {
namespace {

// 16 MiB of parameters: beyond the caches of most machines with its state.
constexpr std::int64_t kElements = 4 << 20;

void Step(benchmark::State& state, const OptimizerConfig& config, int streams) {
  absl::StatusOr<std::unique_ptr<ShardOptimizer>> optimizer =
      ShardOptimizer::Create(config, kElements);
  LOCKSTEP_CHECK(optimizer.ok());
  std::vector<float> parameters(kElements, 1.0f);
  const std::vector<float> gradients(kElements, 1e-3f);
  for (auto _ : state) {
    LOCKSTEP_CHECK((*optimizer)->Step(gradients, 1.0f, parameters).ok());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kElements * streams *
                          static_cast<std::int64_t>(sizeof(float)));
}

// Reads p, g, m, v and writes p, m, v.
void AdamStreams(benchmark::State& state) {
  std::vector<float> p(kElements, 1.0f), m(kElements), v(kElements);
  const std::vector<float> g(kElements, 1e-3f);
  for (auto _ : state) {
    for (std::int64_t i = 0; i < kElements; ++i) {
      m[i] += g[i];
      v[i] += g[i];
      p[i] += m[i] + v[i];
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kElements * 7 *
                          static_cast<std::int64_t>(sizeof(float)));
}

BENCHMARK(AdamStreams)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Step, adamw, AdamW{}, 7)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Step, adam, Adam{}, 7)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Step, sgd_momentum, Sgd{.momentum = 0.9}, 5)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Step, adagrad, Adagrad{}, 5)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep
