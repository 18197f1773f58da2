// Inputs: the tensors that the comparison's Python side hands over, so that all
// sides start from the same bits. inputs.py writes them and says how.
#ifndef LOCKSTEP_TESTS_PARITY_PEERS_INPUTS_H_
#define LOCKSTEP_TESTS_PARITY_PEERS_INPUTS_H_

#include <map>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"

namespace lockstep {

using Inputs = std::map<std::string, at::Tensor>;  // float32

// Errors: NotFound: no such file. DataLoss: it is not whole.
absl::StatusOr<Inputs> ReadInputs(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_PARITY_PEERS_INPUTS_H_
