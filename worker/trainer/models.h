// The built-in models: float32[n, 1, 28, 28] to float32[n, 10].
#ifndef LOCKSTEP_WORKER_TRAINER_MODELS_H_
#define LOCKSTEP_WORKER_TRAINER_MODELS_H_

#include "torch/nn.h"

namespace lockstep {

// Three convolutions with batch norm, one linear layer. 29 k parameters.
torch::nn::Sequential ConvNet();

// Residual blocks of 16, 32 and 64 channels, two each (He et al. 2015, for small
// images). 175 k parameters.
torch::nn::Sequential ResNet();

// Hidden layers of 256 and 128 with batch norm. 236 k parameters.
torch::nn::Sequential Mlp();

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_MODELS_H_
