// SerialReference: what training in lockstep must compute, written down once more with
// LibTorch's operations on whole tensors. One thread, no shards, no tiles.
//
// Each operation rounds on its own, as the product's do, so that results can be compared
// bit for bit; serial_reference_test.cc holds the formulas to torch::optim.
#ifndef LOCKSTEP_TESTS_PARITY_SERIAL_REFERENCE_H_
#define LOCKSTEP_TESTS_PARITY_SERIAL_REFERENCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/engine/engine.h"
#include "worker/optim/optimizer.h"

namespace lockstep {

// What one rank has in a step.
struct RankStep {
  StepOptions options;
  // By trainable parameter, in its type, of a loss that was multiplied by
  // options.loss_scale. Undefined: none.
  std::vector<at::Tensor> gradients;
};

class SerialReference {
 public:
  // `groups`: by parameter, its place among the optimizer's groups, or -1.
  SerialReference(const OptimizerConfig& optimizer, const std::vector<at::Tensor>& parameters,
                  std::vector<int> groups);

  // Of all ranks, in their order. Returns the norm of the averaged gradient; nothing:
  // the step was refused.
  std::optional<double> Step(const std::vector<RankStep>& ranks);
  void SetLearningRate(double lr);
  // As training code writes values between steps.
  void Write(std::size_t parameter, const at::Tensor& values);

  // In their own types.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // In float32, after the last step.
  const std::vector<at::Tensor>& masters() const { return masters_; }

 private:
  OptimizerConfig optimizer_;
  const std::vector<int> groups_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> masters_;
  std::vector<std::vector<at::Tensor>> states_;
  std::int64_t step_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_PARITY_SERIAL_REFERENCE_H_
