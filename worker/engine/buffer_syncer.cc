#include "worker/engine/buffer_syncer.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

bool MoveTogether(const BufferSync& a, const BufferSync& b) {
  if (a.operation != b.operation || a.samples != b.samples) return false;
  return a.operation != Operation::kBroadcast || a.root == b.root;
}

Transfer TransferOf(const BufferSync& sync, std::span<const TensorView> views) {
  Transfer transfer = {.reduce = ReduceOpOf(sync.operation),
                       .root = sync.root,
                       .views = views,
                       .layout = LayoutDigest(views)};
  if (transfer.reduce.has_value()) transfer.root = 0;
  const bool any_samples = std::any_of(sync.samples.begin(), sync.samples.end(),
                                       [](std::int64_t samples) { return samples > 0; });
  // Without samples on any rank all count alike.
  if (any_samples) transfer.weights.assign(sync.samples.begin(), sync.samples.end());
  return transfer;
}

bool AreDueAlike(const std::vector<std::optional<BufferSync>>& a,
                 const std::vector<std::optional<BufferSync>>& b) {
  return std::ranges::equal(a, b, {}, &std::optional<BufferSync>::has_value,
                            &std::optional<BufferSync>::has_value);
}

}  // namespace

absl::Status BufferSyncer::Find(const SyncTask& task, Model* model, int rank) {
  const bool same_names =
      access_ != nullptr && rules_ == task.rules && AreDueAlike(buffers_, task.buffers);
  const bool same_views = same_names && access_->Renew();
  if (same_views && buffers_ == task.buffers) return absl::OkStatus();

  if (rules_ != task.rules) treatments_.clear();
  rules_ = task.rules;
  buffers_ = task.buffers;
  const auto sync_of = [&](absl::string_view name) -> const BufferSync* {
    auto known = treatments_.find(name);
    if (known == treatments_.end()) {
      known = treatments_.emplace(name, rules_->Find(name).treatment).first;
    }
    const int treatment = known->second;
    return treatment < 0 || !buffers_[treatment].has_value() ? nullptr : &*buffers_[treatment];
  };
  if (!same_views) {
    access_ = nullptr;
    LOCKSTEP_ASSIGN_OR_RETURN(
        access_,
        model->Buffers([&](absl::string_view name) { return sync_of(name) != nullptr; }));
  }
  syncs_.clear();
  for (const TensorView& view : access_->views()) syncs_.push_back(sync_of(view.spec.name));
  moves_ = MovesOf(std::vector<bool>(syncs_.size(), true), rank);
  return absl::OkStatus();
}

BufferSyncer::Moves BufferSyncer::MovesOf(const std::vector<bool>& changed, int rank) const {
  const std::span<const TensorView> views = access_->views();
  Moves moves;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!changed[i]) continue;
    const BufferSync& sync = *syncs_[i];
    auto batch = std::ranges::find_if(moves.batches, [&](const Batch& each) {
      return each.sync == &sync || MoveTogether(*each.sync, sync);
    });
    if (batch == moves.batches.end()) {
      moves.batches.push_back({.sync = &sync});
      batch = std::prev(moves.batches.end());
    }
    batch->views.push_back(views[i]);
    // The root's tensors hold what they should already and are not written.
    if (sync.operation == Operation::kBroadcast && sync.root == rank) continue;
    moves.written.push_back(i);
  }
  for (const Batch& batch : moves.batches) {
    const Transfer& transfer =
        moves.transfers.emplace_back(TransferOf(*batch.sync, batch.views));
    moves.nonempty += transfer.bytes() > 0 ? 1 : 0;
    moves.bytes += transfer.bytes();
  }
  return moves;
}

absl::StatusOr<std::vector<bool>> BufferSyncer::ChangedAnywhere(Transport* transport) {
  const std::span<const TensorView> views = access_->views();
  std::vector<std::uint8_t> changed(views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto equal = equal_.find(views[i].spec.name);
    // A sum of equal values is another value.
    changed[i] = syncs_[i]->operation == Operation::kSum || equal == equal_.end();
    if (changed[i]) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::uint64_t digest, contents_.Digest(views[i]));
    changed[i] = equal->second != digest;
  }
  // One for each buffer, so that one that only some ranks have is named.
  std::vector<TensorView> flags;
  for (std::size_t i = 0; i < views.size(); ++i) {
    flags.push_back({{.name = absl::StrCat(views[i].spec.name, " (whether it changed)"),
                      .dtype = DType::kBool},
                     reinterpret_cast<std::byte*>(&changed[i])});
  }
  LOCKSTEP_RETURN_IF_ERROR(transport->AllReduce(flags, ReduceOp::kMax));
  return std::vector<bool>(changed.begin(), changed.end());
}

absl::Status BufferSyncer::Sync(const SyncTask& task, Model* model, Transport* transport,
                                SyncCounters& counters) {
  LOCKSTEP_RETURN_IF_ERROR(Find(task, model, transport->rank()));
  std::vector<bool> changed;  // of skip_unchanged
  Moves some;
  if (task.skip_unchanged) {
    LOCKSTEP_ASSIGN_OR_RETURN(changed, ChangedAnywhere(transport));
    some = MovesOf(changed, transport->rank());
  }
  const Moves& moves = task.skip_unchanged ? some : moves_;
  // Ranks that agreed that nothing has changed need not meet again.
  if (!task.skip_unchanged || !moves.transfers.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(transport->Exchange(moves.transfers));
  }
  LOCKSTEP_RETURN_IF_ERROR(access_->WriteBack(moves.written));

  if (moves.nonempty > 0) {
    ++counters.syncs;
    counters.transfers += moves.nonempty;
    counters.bytes += moves.bytes;
    counters.last_transfers = moves.nonempty;
    counters.last_bytes = moves.bytes;
  }
  const std::span<const TensorView> views = access_->views();
  for (std::size_t i = 0; i < changed.size(); ++i) {
    if (changed[i]) {
      LOCKSTEP_ASSIGN_OR_RETURN(equal_[views[i].spec.name], contents_.Digest(views[i]));
    } else {
      counters.skipped_bytes += views[i].bytes();
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep
