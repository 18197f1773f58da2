#include "tests/bench/bandwidth_probe.h"

#include <algorithm>
#include <cstddef>

namespace lockstep {

void StreamStep(std::span<const std::span<const float>> gradients, std::span<float> parameters,
                std::span<float> moment1, std::span<float> moment2) {
  // The sum of a block stays in the first-level cache.
  constexpr std::size_t kBlock = 1024;
  float sum[kBlock];
  for (std::size_t begin = 0; begin < parameters.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, parameters.size() - begin);
    std::fill_n(sum, n, 0.0f);
    for (const std::span<const float> gradient : gradients) {
      const float* __restrict from = gradient.data() + begin;
      for (std::size_t i = 0; i < n; ++i) sum[i] += from[i];
    }
    float* __restrict p = parameters.data() + begin;
    float* __restrict m = moment1.data() + begin;
    float* __restrict v = moment2.data() + begin;
    for (std::size_t i = 0; i < n; ++i) {
      p[i] += sum[i];
      m[i] += sum[i];
      v[i] += sum[i];
    }
  }
}

}  // namespace lockstep
