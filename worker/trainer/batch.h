// Batch: images and digits as tensors, as the classifiers take them.
#ifndef LOCKSTEP_WORKER_TRAINER_BATCH_H_
#define LOCKSTEP_WORKER_TRAINER_BATCH_H_

#include <cstdint>
#include <span>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "worker/trainer/mnist.h"

namespace lockstep {

struct Batch {
  at::Tensor images;  // float32[n, 1, 28, 28], of mean 0 and deviation 1 over MNIST
  at::Tensor labels;  // int64[n]
};

// The images of `data` with these numbers, in this order.
Batch MakeBatch(const LabeledImages& data, std::span<const std::int64_t> numbers,
                c10::Device device);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_BATCH_H_
