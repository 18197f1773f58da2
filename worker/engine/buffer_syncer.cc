#include "worker/engine/buffer_syncer.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/content_digest.h"

namespace lockstep {
namespace {

// What moves in one transfer.
struct Batch {
  const BufferSync* sync = nullptr;  // of all its buffers
  std::vector<std::size_t> indices;  // of its views among all
  std::vector<TensorView> copies;    // of its views; none: it holds all of them

  std::span<const TensorView> ViewsOf(std::span<const TensorView> all) const {
    return copies.empty() ? all : copies;
  }
};

bool MoveTogether(const BufferSync& a, const BufferSync& b) {
  if (a.operation != b.operation || a.samples != b.samples) return false;
  return a.operation != Operation::kBroadcast || a.root == b.root;
}

// In the order of the first buffer of each; without those that have not changed.
std::vector<Batch> BatchesOf(std::span<const TensorView> views,
                             const std::vector<const BufferSync*>& syncs,
                             const std::vector<bool>& changed) {
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!changed[i]) continue;
    auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& each) {
      return each.sync == syncs[i] || MoveTogether(*each.sync, *syncs[i]);
    });
    if (batch == batches.end()) {
      batches.push_back({.sync = syncs[i]});
      batch = std::prev(batches.end());
    }
    batch->indices.push_back(i);
  }
  for (Batch& batch : batches) {
    if (batch.indices.size() == views.size()) continue;
    for (const std::size_t i : batch.indices) batch.copies.push_back(views[i]);
  }
  return batches;
}

Transfer TransferOf(const BufferSync& sync, std::span<const TensorView> views) {
  Transfer transfer = {.reduce = ReduceOpOf(sync.operation), .root = sync.root, .views = views};
  if (transfer.reduce.has_value()) transfer.root = 0;
  const bool any_samples = std::any_of(sync.samples.begin(), sync.samples.end(),
                                       [](std::int64_t samples) { return samples > 0; });
  // Without samples on any rank all count alike.
  if (any_samples) transfer.weights.assign(sync.samples.begin(), sync.samples.end());
  return transfer;
}

void Count(std::span<const Transfer> transfers, SyncCounters& counters) {
  std::int64_t moved = 0;
  std::int64_t bytes = 0;
  for (const Transfer& transfer : transfers) {
    bytes += transfer.bytes();
    moved += transfer.bytes() > 0 ? 1 : 0;
  }
  if (moved == 0) return;
  ++counters.syncs;
  counters.transfers += moved;
  counters.bytes += bytes;
  counters.last_transfers = moved;
  counters.last_bytes = bytes;
}

}  // namespace

const BufferSync* BufferSyncer::SyncOf(const SyncTask& task, absl::string_view name) {
  if (rules_ != task.rules) {
    rules_ = task.rules;
    treatments_.clear();
  }
  auto known = treatments_.find(name);
  if (known == treatments_.end()) {
    known = treatments_.emplace(name, task.rules->Find(name).treatment).first;
  }
  const int treatment = known->second;
  if (treatment < 0 || !task.buffers[treatment].has_value()) return nullptr;
  return &*task.buffers[treatment];
}

absl::StatusOr<std::vector<bool>> BufferSyncer::ChangedAnywhere(
    std::span<const TensorView> views, const std::vector<const BufferSync*>& syncs,
    Transport* transport) {
  std::vector<std::uint8_t> changed(views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto equal = equal_.find(views[i].spec.name);
    // A sum of equal values is another value.
    changed[i] = syncs[i]->operation == Operation::kSum || equal == equal_.end() ||
                 equal->second != ContentDigest(views[i]);
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
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<TensorAccess> access,
      model->Buffers([&](absl::string_view name) { return SyncOf(task, name) != nullptr; }));
  const std::span<const TensorView> views = access->views();
  std::vector<const BufferSync*> syncs;
  syncs.reserve(views.size());
  for (const TensorView& view : views) syncs.push_back(SyncOf(task, view.spec.name));

  std::vector<bool> changed(views.size(), true);
  if (task.skip_unchanged) {
    LOCKSTEP_ASSIGN_OR_RETURN(changed, ChangedAnywhere(views, syncs, transport));
  }
  const std::vector<Batch> batches = BatchesOf(views, syncs, changed);
  std::vector<Transfer> transfers;
  std::vector<std::size_t> written;
  for (const Batch& batch : batches) {
    transfers.push_back(TransferOf(*batch.sync, batch.ViewsOf(views)));
    // The root's tensors hold what they should already and are not written.
    const Transfer& transfer = transfers.back();
    if (!transfer.reduce.has_value() && transfer.root == transport->rank()) continue;
    written.insert(written.end(), batch.indices.begin(), batch.indices.end());
  }
  // Ranks that agreed that nothing has changed need not meet again.
  if (!task.skip_unchanged || !transfers.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(transport->Exchange(transfers));
  }
  LOCKSTEP_RETURN_IF_ERROR(access->WriteBack(written));

  Count(transfers, counters);
  if (!task.skip_unchanged) return absl::OkStatus();
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (changed[i]) {
      equal_[views[i].spec.name] = ContentDigest(views[i]);
    } else {
      counters.skipped_bytes += views[i].bytes();
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep
