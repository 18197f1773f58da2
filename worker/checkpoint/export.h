// A checkpoint as one file that torch.load(path, weights_only=True) reads:
//
//   {"model": {name: tensor, ...},           # parameters, then buffers: load_state_dict() takes it
//    "optimizer": {"state": {0: {"step": tensor, "exp_avg": tensor, ...}, ...},
//                  "param_groups": [{"lr": ..., "params": [0, ...]}, ...]},
//    "masters": {name: tensor, ...}}         # only with parameters of short types: float32
//
// The optimizer's part is for torch.optim's SGD, Adam, AdamW and Adagrad, made with one group of
// all parameters, frozen ones too, that no pattern matches, in the model's order; then, for each of
// the optimizer's own groups, those that it gets. Frozen parameters have no state. The lr is the
// one in force, times the group's lr_scale.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_EXPORT_H_
#define LOCKSTEP_WORKER_CHECKPOINT_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/file_system.h"

namespace lockstep {

// Writes `path`, in place of a file of that name, once all is durable. Needs host memory for the
// largest tensor. Errors: those of CheckpointReader and FileSystem.
absl::Status ExportToTorch(CheckpointReader& checkpoint, FileSystem& files,
                           const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_EXPORT_H_
