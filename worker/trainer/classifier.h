// Classifier: a module that tells digits apart, whichever kind of module it is.
//
// Built in: "conv" (small, with batch norm), "resnet" (residual blocks), "mlp"
// (two hidden layers with batch norm). Anything that ends in ".pt" is the path
// of a TorchScript module. What LibTorch throws in forward() is not caught here.
// Used by one thread.
#ifndef LOCKSTEP_WORKER_TRAINER_CLASSIFIER_H_
#define LOCKSTEP_WORKER_TRAINER_CLASSIFIER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "worker/optim/optimizer.h"
#include "worker/session/session.h"
#include "worker/torch/named_tensors.h"

namespace lockstep {

class Classifier {
 public:
  virtual ~Classifier() = default;

  // float32[n, 1, 28, 28] to float32[n, 10], not normalised.
  virtual at::Tensor Forward(const at::Tensor& images) = 0;
  virtual void SetTraining(bool training) = 0;
  virtual std::unique_ptr<NamedTensors> Tensors() = 0;
  // Parameters and buffers; before Join().
  virtual void MoveTo(c10::Device device) = 0;
  // The classifier outlives the session. Errors: as Session::Join().
  virtual absl::StatusOr<std::unique_ptr<Session>> Join(const SessionOptions& options,
                                                        const OptimizerConfig& optimizer) = 0;
};

// Equal seeds give equal built-in models.
// Errors: InvalidArgument: no such model; the file is no TorchScript module, or
//   not one from float32[n, 1, 28, 28] to float32[n, 10].
absl::StatusOr<std::unique_ptr<Classifier>> MakeClassifier(const std::string& model,
                                                           std::uint64_t seed);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_CLASSIFIER_H_
