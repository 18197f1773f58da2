// One number for the names and values of tensors, as reports show it.
#ifndef LOCKSTEP_WORKER_TRAINER_TENSOR_DIGEST_H_
#define LOCKSTEP_WORKER_TRAINER_TENSOR_DIGEST_H_

#include <string>
#include <vector>

#include "worker/torch/named_tensors.h"

namespace lockstep {

// 16 hexadecimal digits; equal for tensors of equal names and bytes in the same order.
std::string DigestOf(const std::vector<NamedTensor>& tensors);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_TENSOR_DIGEST_H_
