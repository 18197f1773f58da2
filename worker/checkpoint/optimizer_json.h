// An optimizer's settings as JSON, and back: {"name": "AdamW", "lr": 0.001, ..., "groups": [...]}.
// Pure.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_OPTIMIZER_JSON_H_
#define LOCKSTEP_WORKER_CHECKPOINT_OPTIMIZER_JSON_H_

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/json_object.h"
#include "worker/optim/optimizer.h"

namespace lockstep {

// Torch's name of it: "SGD", "Adam", "AdamW", "Adagrad".
const char* OptimizerName(const OptimizerConfig& config);

// `config` passed Validate().
nlohmann::ordered_json OptimizerToJson(const OptimizerConfig& config);

// Errors: DataLoss: an unknown name, or a setting that is missing or of another type.
absl::StatusOr<OptimizerConfig> OptimizerFromJson(const JsonObject& object);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_OPTIMIZER_JSON_H_
