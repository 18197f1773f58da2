// Scenario: one training, told once and carried out twice: by engines on several ranks
// and by the SerialReference.
#ifndef LOCKSTEP_TESTS_PARITY_SCENARIO_H_
#define LOCKSTEP_TESTS_PARITY_SCENARIO_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "tests/parity/recipes.h"
#include "tests/parity/serial_reference.h"

namespace lockstep {

// Where a rank is in a training. Functions of it are called by the ranks' threads.
struct Turn {
  int step = 0;  // attempts: refused ones count
  int rank = 0;
  int world_size = 1;
};

struct Scenario {
  std::vector<TypedParameter> parameters;
  OptimizerConfig optimizer;
  int steps = 8;
  // Of the parameters; other than the CPU in-process only.
  c10::Device device = c10::kCPU;

  // What the rank has in the step.
  std::function<RankStep(const Scenario&, const Turn&)> part;
  // How it comes to be: by one backward pass, unless this is given; `parameters` are the
  // trainable ones of the rank's module.
  std::function<void(const std::vector<at::Tensor>& parameters, const RankStep& part,
                     const Turn&)>
      deliver = nullptr;
  // Of the step, if given.
  std::function<double(int step)> learning_rate = nullptr;
  // What training code writes to trainable parameters ahead of the step: by parameter;
  // undefined: nothing.
  std::function<std::vector<at::Tensor>(const Scenario&, int step)> written = nullptr;
  // If it names a rank, that rank alone writes these values, then it broadcasts them.
  std::function<std::optional<int>(int step, int world_size)> root = nullptr;

  std::vector<TypedParameter> Trainable() const;
};

enum class Over { kInProcess, kShm, kGloo };
std::string NameOf(Over transport);

struct Outcome {
  std::vector<std::vector<at::Tensor>> parameters;  // by rank, on the CPU; frozen ones last
  // By step, as rank 0 has it: the norm (0 if it was not measured).
  std::vector<double> norms;
  std::vector<bool> refused;  // by step
  std::string first_refusal;
};

// A loss whose gradients are those of the part, and its backward pass.
void Backward(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients);

Outcome TrainInLockstep(const Scenario& scenario, int world_size, Over transport);
Outcome TrainSerially(const Scenario& scenario, int world_size);

// Bit for bit: the parameters of all ranks, norms, and which steps were refused.
void ExpectEqual(const Outcome& outcome, const Outcome& reference, const std::string& what);
// In-process and over shared memory, for 1 to 4 ranks, to the bit.
void ExpectParity(const Scenario& scenario, const std::string& what);

// Of the same type, in units in the last place; -0 and 0 are the same.
std::int64_t LargestUlpDistance(const at::Tensor& a, const at::Tensor& b);

// Multiples of 1/16 from -1/2 to 1/2: sums of some samples are exact in each type.
at::Tensor DyadicGradient(const TypedParameter& parameter, std::uint64_t seed);
// Of many magnitudes: each sum rounds.
at::Tensor RoundingGradient(const TypedParameter& parameter, std::uint64_t seed);

// 12 samples of DyadicGradient() spread over the ranks: all sums are exact, so that any
// number of ranks gives the same bits. Every fifth step the last rank has them all.
RankStep ExactPart(const Scenario& scenario, const Turn& turn);
// Ranks of 1 to 4 samples with a RoundingGradient(): sums depend on the order of ranks.
RankStep RoundingPart(const Scenario& scenario, const Turn& turn);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_PARITY_SCENARIO_H_
