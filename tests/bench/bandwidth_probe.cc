#include "tests/bench/bandwidth_probe.h"

#include <algorithm>
#include <cstddef>

#include "worker/numeric/vector_loop.h"

namespace lockstep {
namespace {

LOCKSTEP_VECTORIZE void Add(const float* __restrict from, std::size_t n, float* __restrict sum) {
  ForEachStrip(n, [=](std::size_t begin, auto width) {
    PrefetchToRead(from + begin);
#pragma GCC ivdep
    for (std::size_t i = begin; i < begin + width; ++i) sum[i] += from[i];
  });
}

LOCKSTEP_VECTORIZE void AddToAll(const float* __restrict sum, std::size_t n, float* __restrict p,
                                 float* __restrict m, float* __restrict v) {
  ForEachStrip(n, [=](std::size_t begin, auto width) {
    PrefetchToWrite(p + begin);
    PrefetchToWrite(m + begin);
    PrefetchToWrite(v + begin);
#pragma GCC ivdep
    for (std::size_t i = begin; i < begin + width; ++i) {
      p[i] += sum[i];
      m[i] += sum[i];
      v[i] += sum[i];
    }
  });
}

}  // namespace

void StreamStep(std::span<const std::span<const float>> gradients, std::span<float> parameters,
                std::span<float> moment1, std::span<float> moment2) {
  // The sum of a block stays in the first-level cache.
  constexpr std::size_t kBlock = 2048;
  float sum[kBlock];
  for (std::size_t begin = 0; begin < parameters.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, parameters.size() - begin);
    std::fill_n(sum, n, 0.0f);
    for (const std::span<const float> gradient : gradients) Add(gradient.data() + begin, n, sum);
    AddToAll(sum, n, parameters.data() + begin, moment1.data() + begin, moment2.data() + begin);
  }
}

}  // namespace lockstep
