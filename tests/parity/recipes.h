// The optimizers and models that parity is shown on. Pure values.
#ifndef LOCKSTEP_TESTS_PARITY_RECIPES_H_
#define LOCKSTEP_TESTS_PARITY_RECIPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "c10/core/ScalarType.h"
#include "worker/optim/optimizer.h"

namespace lockstep {

struct NamedOptimizer {
  std::string name;
  OptimizerConfig config;
};

inline std::vector<NamedOptimizer> AllOptimizers() {
  return {
      {"Sgd", Sgd{.lr = 0.05, .weight_decay = 1e-3}},
      {"Momentum", Sgd{.lr = 0.05, .momentum = 0.9, .dampening = 0.25, .weight_decay = 1e-3}},
      {"Nesterov", Sgd{.lr = 0.05, .momentum = 0.9, .nesterov = true}},
      {"Adam", Adam{.lr = 1e-2, .weight_decay = 1e-3}},
      {"AdamW", AdamW{.lr = 1e-2, .weight_decay = 0.1}},
      {"Adagrad", Adagrad{.lr = 5e-2, .lr_decay = 0.1, .weight_decay = 1e-3,
                          .initial_accumulator_value = 0.1}},
  };
}

struct TypedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  c10::ScalarType type = c10::ScalarType::Float;
  bool trainable = true;
  int group = -1;  // its place among the optimizer's groups
};

struct NamedParameters {
  std::string name;
  std::vector<TypedParameter> parameters;
};

// Odd sizes: shards cut through tensors and their padding.
inline std::vector<TypedParameter> AllOfOneType(c10::ScalarType type) {
  return {{"conv_weight", {37}, type},
          {"conv_bias", {5, 3}, type},
          {"bn_bias", {1}, type},
          {"fc_weight", {2, 3, 7}, type}};
}

// Norm layers in float32, matrices in bfloat16 and one in float16, in a module's order.
inline std::vector<TypedParameter> MixedTypes() {
  using enum c10::ScalarType;
  return {{"conv_weight", {19, 5}, BFloat16}, {"norm_weight", {19}, Float},
          {"norm_bias", {19}, Float},         {"fc_weight", {3, 37}, BFloat16},
          {"head_weight", {5, 7}, Half},      {"head_bias", {1}, BFloat16}};
}

inline std::vector<NamedParameters> AllTypes() {
  using enum c10::ScalarType;
  return {{"float32", AllOfOneType(Float)},
          {"bfloat16", AllOfOneType(BFloat16)},
          {"float16", AllOfOneType(Half)},
          {"mixed", MixedTypes()}};
}

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_PARITY_RECIPES_H_
