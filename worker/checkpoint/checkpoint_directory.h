// The directory that holds a job's checkpoints: which are there, and which go.
//
// A checkpoint is a directory "step-..." with a manifest.json; without it, it is what a write left
// that did not end. One rank at a time removes, and nobody writes then. Thread-safe.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
#define LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/file_system.h"

namespace lockstep {

// The manifest of the checkpoint of `step`. Errors: NotFound: there is none; DataLoss: it is not
//   what was written; FailedPrecondition: it has another format version. They name the file.
absl::StatusOr<CheckpointManifest> ReadManifest(const FileSystem& files, const std::string& root,
                                                std::int64_t step);

// The step of the newest checkpoint. One whose manifest is damaged is passed over, with a warning
// in the log. Errors: NotFound: there is none, and why those that are there do not count.
absl::StatusOr<std::int64_t> FindLatest(const FileSystem& files, const std::string& root);

// Removes the manifest first, durably, and then the rest; also what is incomplete. What is no
// checkpoint's stays, and with it the directory. OK if there is nothing.
absl::Status RemoveCheckpoint(FileSystem& files, const std::string& root, std::int64_t step);

// Removes all checkpoints but the newest `keep` >= 1, and what is incomplete and older than the
// newest. Damaged ones neither count nor go. Goes on after an error and returns the first.
absl::Status KeepNewest(FileSystem& files, const std::string& root, int keep);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
