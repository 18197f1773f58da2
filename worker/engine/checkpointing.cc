// Engine: when checkpoints are written, and when an epoch begins from one.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/engine/checkpoint_loader.h"
#include "worker/engine/checkpoint_saver.h"
#include "worker/engine/engine.h"
#include "worker/engine/gather.h"

namespace lockstep {

absl::StatusOr<std::unique_ptr<CheckpointReader>> Engine::CheckpointToBeginWith(
    const Recovery& recovery) {
  const bool is_lost = recovery.way == Recovery::Way::kRestore;
  std::unique_ptr<CheckpointReader> checkpoint;
  if (saver_ != nullptr && recovery.way != Recovery::Way::kContinue) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        checkpoint,
        OpenNewestCheckpoint(saver_->files(), saver_->options().directory, *membership_));
  }
  const std::string what = absl::StrCat("epoch ", epoch().value(), " ",
                                        Describe(recovery, membership_->proposal.members));
  if (checkpoint != nullptr) {
    const CheckpointManifest& manifest = checkpoint->manifest();
    const std::string from = absl::StrCat("the checkpoint of step ", manifest.id.step,
                                          ", written by epoch ", manifest.id.epoch);
    if (rank() != 0) return checkpoint;
    if (is_lost) {
      LogWarning(what, "; all go back to ", from);
    } else {
      LogInfo("epoch ", epoch().value(), " begins with ", from);
    }
    return checkpoint;
  }
  if (!is_lost) {
    if (recovery.missed.valid() && rank() == 0) {
      LogWarning(what, ": the job ran up to epoch ", recovery.missed.value(),
                 ", of which no member is here, and there is no checkpoint");
    }
    return nullptr;
  }
  return absl::DataLossError(absl::StrCat(
      what, saver_ == nullptr ? ", and there are no checkpoints"
                              : ", and there is no checkpoint yet",
      ". Start the job anew; write checkpoints, or set optimizer_replicas to 2, so that the loss "
      "of a worker costs less"));
}

absl::Status Engine::SaveWhatIsDue(const Agreement& agreement, bool on_command) {
  if (saver_ == nullptr) {
    if (on_command && rank() == 0) {
      LogWarning("a checkpoint was asked for, but the workers have no directory for it");
    }
    return absl::OkStatus();
  }
  if (saver_->CanFinish(agreement.saved)) {
    LOCKSTEP_RETURN_IF_ERROR(saver_->Finish(membership_->transport.get()));
  }
  if (!on_command && !saver_->IsDue(step())) return absl::OkStatus();
  if (saver_->is_under_way()) {
    if (rank() == 0) {
      LogWarning("step ", step(), " gets no checkpoint, since the one before is still being "
                 "written; write them less often");
    }
    return absl::OkStatus();
  }
  return BeginCheckpoint();
}

absl::Status Engine::BeginCheckpoint() {
  LOCKSTEP_RETURN_IF_ERROR(CarryOut(membership_->protocol.BeforeCheckpoint()));
  return saver_->Begin(*membership_, model_);
}

absl::Status Engine::SaveCheckpoint() {
  LOCKSTEP_RETURN_IF_ERROR(CheckMayMeet());
  if (saver_ == nullptr) {
    return absl::FailedPreconditionError(
        "there is no directory for checkpoints; name one when joining");
  }
  const auto finish = [&] {
    saver_->Await();
    return Latch(saver_->Finish(membership_->transport.get()));
  };
  if (saver_->is_under_way()) LOCKSTEP_RETURN_IF_ERROR(finish());
  // Only rank 0 looks: members of this epoch alone might know of one from the epoch before.
  const std::int32_t mine = rank() == 0 && saver_->HasCheckpoint(step()) ? 1 : 0;
  const absl::StatusOr<std::vector<std::int32_t>> has =
      Gather(membership_->transport.get(), "whether the step has a checkpoint", mine);
  LOCKSTEP_RETURN_IF_ERROR(Latch(has.status()));
  if (has->front() != 0) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(Latch(BeginCheckpoint()));
  LOCKSTEP_RETURN_IF_ERROR(finish());
  return saver_->AwaitOutcome();
}

}  // namespace lockstep
