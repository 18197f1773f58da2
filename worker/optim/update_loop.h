// The loop that carries a rule over a range of elements, once for all optimizers.
//
// A rule is a class with `kStates`, the floats that it keeps for each element, and
// Updated(param, gradient, state...), which moves the state of one element and
// returns its parameter after the step. Pure.
#ifndef LOCKSTEP_WORKER_OPTIM_UPDATE_LOOP_H_
#define LOCKSTEP_WORKER_OPTIM_UPDATE_LOOP_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "worker/numeric/vector_loop.h"

namespace lockstep {

template <int kStates>
using StatePointers = std::array<float*, kStates>;

namespace internal {

template <typename Rule, std::size_t... S>
inline float UpdateOne(const Rule& rule, float param, float gradient,
                       [[maybe_unused]] const StatePointers<Rule::kStates>& states,
                       [[maybe_unused]] std::size_t i, std::index_sequence<S...>) {
  return rule.Updated(param, gradient, states[S][i]...);
}

}  // namespace internal

// One step of `n` elements in place. Spans do not overlap. The gradient used is
// gradients[i] * scale.
template <typename Rule>
LOCKSTEP_VECTORIZE void UpdateRange(const Rule& rule, const float* gradients, float scale,
                                    StatePointers<Rule::kStates> states, float* params,
                                    std::size_t n) {
  const Rule held = rule;
  ForEachStrip(n, [=](std::size_t begin, auto width) {
    for (float* state : states) PrefetchToWrite(state + begin);
    PrefetchToWrite(params + begin);
#pragma GCC ivdep
    for (std::size_t i = begin; i < begin + width; ++i) {
      params[i] = internal::UpdateOne(held, params[i], gradients[i] * scale, states, i,
                                      std::make_index_sequence<Rule::kStates>());
    }
  });
}

// The same where parameters are of a short type T and the step is made on masters,
// their values in float (Micikevicius et al. 2018). A parameter that is not its master
// rounded was written by training code, and counts.
template <typename Rule, typename T>
LOCKSTEP_VECTORIZE void UpdateRange(const Rule& rule, const float* gradients, float scale,
                                    StatePointers<Rule::kStates> states, float* masters, T* params,
                                    std::size_t n) {
  const Rule held = rule;
  ForEachStrip(n, [=](std::size_t begin, auto width) {
    for (float* state : states) PrefetchToWrite(state + begin);
    PrefetchToWrite(masters + begin);
    PrefetchToWrite(params + begin);
    for (std::size_t i = begin; i < begin + width; ++i) {
      const bool is_own =
          std::bit_cast<std::uint16_t>(params[i]) == std::bit_cast<std::uint16_t>(T(masters[i]));
      if (!is_own) masters[i] = static_cast<float>(params[i]);
    }
#pragma GCC ivdep
    for (std::size_t i = begin; i < begin + width; ++i) {
      masters[i] = internal::UpdateOne(held, masters[i], gradients[i] * scale, states, i,
                                       std::make_index_sequence<Rule::kStates>());
    }
    for (std::size_t i = begin; i < begin + width; ++i) params[i] = T(masters[i]);
  });
}

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_UPDATE_LOOP_H_
