// Whether a file is the one that a checkpoint's manifest means. Pure.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_FILE_CHECK_H_
#define LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_FILE_CHECK_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/safetensors_file.h"

namespace lockstep {

// That `file` at `path` has the size, the metadata and the tensors of manifest.files[index]; its
// checksum is not looked at. Errors: DataLoss names the file, what it has and what was expected.
absl::Status CheckFileOf(const CheckpointManifest& manifest, std::size_t index,
                         const SafetensorsFile& file, const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_FILE_CHECK_H_
