// CheckpointSaver: one rank's part of writing checkpoints while training goes on.
//
//   Begin(): a copy of this rank's shard in host memory --> a thread writes it
//   through_with(): goes into the step's word           --> all ranks know when all have written
//   Finish(): what each has written is gathered         --> a thread of rank 0 writes the manifest
//
// Nothing waits for a disk but Await() and AwaitOutcome(). A write that failed costs the
// checkpoint, not the training: the log says why. It outlives epochs; what an epoch leaves
// unfinished is no checkpoint. Files and their format: worker/checkpoint. Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_CHECKPOINT_SAVER_H_
#define LOCKSTEP_WORKER_ENGINE_CHECKPOINT_SAVER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/file_system.h"
#include "worker/engine/engine_options.h"
#include "worker/engine/membership.h"
#include "worker/engine/model.h"

namespace lockstep {

class CheckpointSaver {
 public:
  // `files` outlives it.
  CheckpointSaver(CheckpointOptions options, FileSystem* files)
      : options_(std::move(options)), files_(*files) {}
  // Waits for what is being written.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  const CheckpointOptions& options() const { return options_; }
  FileSystem& files() const { return files_; }

  bool IsDue(std::int64_t step) const {
    return options_.every_steps > 0 && step % options_.every_steps == 0;
  }

  // One was begun and is not finished; alike on all ranks.
  bool is_under_way() const { return begun_.has_value(); }

  // Not collective, but all ranks do it alike, behind a step: begins a checkpoint; waits until
  // files of the last one are written. Returns when the state was copied.
  // Errors: as DeviceMath's and Model's: what could not be copied.
  absl::Status Begin(Membership& now, Model* model);
  // Of the step's word.
  std::int64_t through_with() const { return through_with_; }
  // Waits until this rank is through with what it began.
  void Await();

  // Collective, if all are through with the checkpoint that was begun last, and did not do it yet.
  bool CanFinish(std::int64_t through_with_of_all) const {
    return is_under_way() && through_with_of_all == begun_->id.step;
  }
  // Errors: as Transport's.
  absl::Status Finish(Transport* transport);
  // Waits until what was finished last is durable. On rank 0: why it is no checkpoint.
  const absl::Status& AwaitOutcome();

  // Whether `step` has a checkpoint. Waits for what was finished last.
  bool HasCheckpoint(std::int64_t step);

  // The epoch is over: what was begun in it is given up. Does not wait.
  void Abandon();

 private:
  struct Snapshot;

  absl::Status CommitAndTidy(const CheckpointManifest& manifest);
  void Join();

  const CheckpointOptions options_;
  FileSystem& files_;
  std::optional<CheckpointManifest> begun_;  // without files, until it is finished
  std::atomic<std::int64_t> through_with_ = 0;
  std::thread writer_;
  // What it wrote, in the manifest's order of files; once it has ended.
  absl::StatusOr<std::vector<CheckpointFile>> written_;
  absl::Status outcome_;  // of what was finished last; once the writer has ended
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_CHECKPOINT_SAVER_H_
