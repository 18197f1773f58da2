// The models of the comparison, as peer_models.py has them.
//
// Used by one thread.
#ifndef LOCKSTEP_TESTS_PARITY_PEERS_MODELS_H_
#define LOCKSTEP_TESTS_PARITY_PEERS_MODELS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/parity/peers/inputs.h"
#include "worker/optim/optimizer.h"
#include "worker/session/session.h"

namespace lockstep {

class PeerModel {
 public:
  virtual ~PeerModel() = default;

  virtual absl::StatusOr<std::unique_ptr<Session>> Join(const SessionOptions& options,
                                                        const OptimizerConfig& optimizer) = 0;
  // Of this rank's batch `batch`, from a forward in training or evaluation mode.
  virtual at::Tensor Loss(std::int64_t batch) = 0;
  virtual void SetTraining(bool training) = 0;
  virtual std::map<std::string, at::Tensor> Parameters() = 0;
  virtual std::map<std::string, at::Tensor> Buffers() = 0;

  // The buffer that the last forward worked with, as it was then.
  virtual at::Tensor Seen() const { return {}; }
  // A new tensor under the name of the buffer that is looked at.
  virtual void Reassign(const std::string& name, const at::Tensor& value);
  virtual void Register(const std::string& name, const at::Tensor& value);
};

// The model that `script` asks for, with this rank's data.
std::unique_ptr<PeerModel> MakePeerModel(const nlohmann::json& script, const Inputs& inputs,
                                         int rank);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_PARITY_PEERS_MODELS_H_
