// Engine: how an epoch begins and ends for a rank.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/policy/model_check.h"
#include "common/policy/schedule.h"
#include "worker/engine/checkpoint_loader.h"
#include "worker/engine/checkpoint_saver.h"
#include "worker/engine/engine.h"
#include "worker/engine/joining.h"
#include "worker/engine/recovering.h"

namespace lockstep {

absl::Status Engine::Start(const HeldMemberships& held) {
  Recovery recovery;
  if (link_ != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(recovery, AgreeOnRecovery(held, *membership_));
  }
  if (saver_ != nullptr) saver_->Abandon();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> checkpoint,
                            CheckpointToBeginWith(recovery));
  beginning_ = checkpoint == nullptr
                   ? Describe(recovery, membership_->proposal.members)
                   : absl::StrCat("begins with the checkpoint of step ",
                                  checkpoint->manifest().id.step);
  LOCKSTEP_RETURN_IF_ERROR(Adopt(recovery, checkpoint != nullptr));
  if (recovery.way == Recovery::Way::kContinue) {
    if (rank() == recovery.FirstSurvivor()) {
      LogInfo("epoch ", epoch().value(), " ", beginning_);
    }
    LOCKSTEP_RETURN_IF_ERROR(CarryOver(recovery, held, *membership_));
  }
  if (checkpoint != nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(LoadCheckpoint(*checkpoint, *membership_, model_));
    // As if all had trained up to there.
    recovery = {.way = Recovery::Way::kContinue,
                .lineage = epoch(),
                .step = checkpoint->manifest().id.step,
                .samples = checkpoint->manifest().samples,
                .survives = std::vector<bool>(world_size(), true)};
  }
  LOCKSTEP_RETURN_IF_ERROR(SyncAtStart(recovery));
  TakeOver(recovery, *membership_);
  // Whoever is here knows that all have taken over.
  LOCKSTEP_RETURN_IF_ERROR(membership_->transport->Exchange({}));
  model_->Settle();
  WarnAboutPolicy(/*at_start=*/true);
  Report(Phase::kTraining, {});
  return absl::OkStatus();
}

absl::Status Engine::Adopt(const Recovery& recovery, bool from_checkpoint) {
  const bool anew = recovery.way == Recovery::Way::kStartAnew && !from_checkpoint;
  const int root = ResolveRoot(policy().root, membership_->proposal.members).rank;
  bool shared = false;
  std::vector<BlockMemory> memory;
  for (std::size_t i = 0; i < membership_->blocks.size(); ++i) {
    const BlockArenas& block = membership_->blocks[i];
    shared = shared || block.parameters.shared;
    memory.push_back({.block = membership_->proposal.plan.blocks[i],
                      .parameters = block.parameters.data,
                      .gradients = block.gradients.data});
  }
  const bool copy_in = anew && (!shared || rank() == root);
  LOCKSTEP_RETURN_IF_ERROR(
      model_->Adopt(membership_->proposal.plan, memory,
                    copy_in ? InitialValues::kCopyIn : InitialValues::kDiscard));
  adopted_ = true;
  // In a shared arena the root alone has written: the others wait for it,
  // whatever the policy says.
  if (anew && shared && !policy().broadcast_parameters_at_start && world_size() > 1) {
    return membership_->transport->Broadcast({}, root);
  }
  return absl::OkStatus();
}

absl::Status Engine::SyncAtStart(const Recovery& recovery) {
  std::vector<SyncTask> due = membership_->protocol.AtStart();
  if (recovery.way == Recovery::Way::kContinue) {
    // What new members bring is of no use to the others.
    const int survivor = recovery.FirstSurvivor();
    const bool any_new = std::ranges::count(recovery.survives, false) > 0;
    for (SyncTask& task : due) {
      if (!recovery.survives[task.root]) task.root = survivor;
      for (std::optional<BufferSync>& sync : task.buffers) {
        if (sync.has_value() && !recovery.survives[sync->root]) sync->root = survivor;
      }
    }
    if (any_new) {
      std::vector<SyncTask> first = membership_->protocol.OnCommand(
          {.buffers = true, .parameters = true, .root = RootRank{survivor}});
      due.insert(due.begin(), std::make_move_iterator(first.begin()),
                 std::make_move_iterator(first.end()));
    }
  }
  return CarryOut(due);
}

std::shared_ptr<Membership> Engine::Stop(const absl::Status& why) {
  left_ = true;
  const absl::Status said = over_ ? absl::OkStatus() : why;
  link_->OnAbort(nullptr);
  if (!said.ok()) membership_->transport->Abort(said);
  if (adopted_) model_->Release();
  link_->ReportStopped(epoch(), membership_->commit.step(), said);
  return membership_;
}

bool Engine::CanRejoin() const {
  return link_ != nullptr && !left_ && !over_ && NextProposalMayHelp(error_);
}

void Engine::WarnAboutPolicy(bool at_start) const {
  if (rank() != 0) return;
  const std::vector<std::string>& members = membership_->proposal.members;
  std::set<std::string> missing;
  const auto note = [&](const Root& root) {
    if (ResolveRoot(root, members).fallback) missing.insert(Describe(root));
  };
  note(policy().root);
  for (const SyncRule& rule : policy().rules) {
    if (rule.root) note(*rule.root);
  }
  if (!missing.empty()) {
    LogWarning("policy revision ", revision().value(), " names roots that are no members of epoch ",
               epoch().value(), ": ", absl::StrJoin(missing, ", "), "; ", members[0],
               " (rank 0) stands in");
  }
  // Revisions were checked when they were made; the first policy perhaps before
  // the model was known.
  if (!at_start) return;
  const absl::StatusOr<Manifest> manifest = model_->Describe();
  const absl::Status matched =
      manifest.ok() ? CheckPatternsMatch(membership_->protocol.rules(), BufferNames(*manifest))
                    : manifest.status();
  if (!matched.ok()) LogWarning("policy revision ", revision().value(), ": ", matched.message());
}

}  // namespace lockstep
