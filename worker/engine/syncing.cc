#include "worker/engine/syncing.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

// What goes in one transfer.
struct BatchKey {
  Operation operation = Operation::kBroadcast;
  int root = 0;                       // of kBroadcast
  std::vector<std::int64_t> samples;  // of kMeanBySamples

  auto operator<=>(const BatchKey&) const = default;
};

BatchKey KeyOf(const BufferSync& sync) {
  const bool broadcast = sync.operation == Operation::kBroadcast;
  return {.operation = sync.operation,
          .root = broadcast ? sync.root : 0,
          .samples = sync.samples};
}

struct Batch {
  std::vector<TensorView> views;
  std::vector<std::size_t> indices;  // of the views among all
};

Transfer TransferOf(const BatchKey& key, std::span<const TensorView> views) {
  Transfer transfer = {.reduce = ReduceOpOf(key.operation), .root = key.root, .views = views};
  const bool any_samples = std::any_of(key.samples.begin(), key.samples.end(),
                                       [](std::int64_t samples) { return samples > 0; });
  // Without samples on any rank all count alike.
  if (any_samples) transfer.weights.assign(key.samples.begin(), key.samples.end());
  return transfer;
}

std::int64_t BytesOf(std::span<const TensorView> views) {
  std::int64_t bytes = 0;
  for (const TensorView& view : views) bytes += view.bytes();
  return bytes;
}

std::uint64_t DigestOf(const TensorSpec& spec, std::span<const std::byte> bytes) {
  Digester digester;
  digester.Add(static_cast<std::int64_t>(spec.dtype));
  for (const std::int64_t size : spec.shape) digester.Add(size);
  return digester.Add(bytes).Finish();
}

std::uint64_t DigestOf(const TensorView& view) {
  return DigestOf(view.spec, {view.data, static_cast<std::size_t>(view.bytes())});
}

std::vector<std::size_t> IndicesOf(std::span<const TensorView> views) {
  std::vector<std::size_t> indices(views.size());
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

template <typename Real>
void AppendAsDoubles(const TensorView& view, std::vector<double>& to) {
  for (std::int64_t i = 0; i < view.spec.elements(); ++i) {
    Real value;
    std::memcpy(&value, view.data + i * sizeof(Real), sizeof(Real));
    to.push_back(std::isnan(value) ? std::numeric_limits<double>::infinity() : value);
  }
}

// Copies of buffers that MIN and MAX can work on, with the names of the buffers.
struct DoubleCopies {
  std::vector<TensorSpec> specs;
  std::vector<std::vector<double>> values;

  std::vector<TensorView> views() {
    std::vector<TensorView> views;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      views.push_back({specs[i], reinterpret_cast<std::byte*>(values[i].data())});
    }
    return views;
  }
};

// `buffers` of float32 and float64.
DoubleCopies CopyFloatBuffers(std::span<const TensorView> buffers) {
  DoubleCopies copies;
  for (const TensorView& buffer : buffers) {
    std::vector<double> values;
    if (buffer.spec.dtype == DType::kFloat32) {
      AppendAsDoubles<float>(buffer, values);
    } else {
      AppendAsDoubles<double>(buffer, values);
    }
    copies.specs.push_back({buffer.spec.name, DType::kFloat64, buffer.spec.shape});
    copies.values.push_back(std::move(values));
  }
  return copies;
}

}  // namespace

int BufferSyncer::TreatmentOf(const std::shared_ptr<const BufferRules>& rules,
                              absl::string_view name) {
  if (rules_ != rules) {
    rules_ = rules;
    treatments_.clear();
  }
  const auto known = treatments_.find(name);
  if (known != treatments_.end()) return known->second;
  const int treatment = rules->Find(name).treatment;
  treatments_.emplace(name, treatment);
  return treatment;
}

absl::StatusOr<std::vector<bool>> BufferSyncer::ChangedAnywhere(
    std::span<const TensorView> views, const std::vector<const BufferSync*>& syncs,
    Transport* transport) {
  std::vector<std::uint8_t> changed(views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto equal = equal_.find(views[i].spec.name);
    // A sum of equal values is another value.
    changed[i] = syncs[i]->operation == Operation::kSum || equal == equal_.end() ||
                 equal->second != DigestOf(views[i]);
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
  const auto sync_of = [&](absl::string_view name) -> const BufferSync* {
    const int treatment = TreatmentOf(task.rules, name);
    if (treatment < 0 || !task.buffers[treatment].has_value()) return nullptr;
    return &*task.buffers[treatment];
  };
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<TensorAccess> access,
      model->Buffers([&](absl::string_view name) { return sync_of(name) != nullptr; }));
  const std::span<const TensorView> views = access->views();
  std::vector<const BufferSync*> syncs;
  for (const TensorView& view : views) syncs.push_back(sync_of(view.spec.name));

  std::vector<bool> changed(views.size(), true);
  if (task.skip_unchanged) {
    LOCKSTEP_ASSIGN_OR_RETURN(changed, ChangedAnywhere(views, syncs, transport));
  }
  std::map<BatchKey, Batch> batches;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!changed[i]) {
      counters.skipped_bytes += views[i].bytes();
      continue;
    }
    Batch& batch = batches[KeyOf(*syncs[i])];
    batch.views.push_back(views[i]);
    batch.indices.push_back(i);
  }
  std::vector<Transfer> transfers;
  for (const auto& [key, batch] : batches) transfers.push_back(TransferOf(key, batch.views));
  // Ranks that agreed that nothing has changed need not meet again.
  if (!task.skip_unchanged || !transfers.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(transport->Exchange(transfers));
  }

  std::vector<std::size_t> written;
  std::int64_t moved_transfers = 0;
  std::int64_t moved_bytes = 0;
  for (const auto& [key, batch] : batches) {
    // The root's tensors hold what they should already and are not written.
    const bool keeps = key.operation == Operation::kBroadcast && key.root == transport->rank();
    if (!keeps) written.insert(written.end(), batch.indices.begin(), batch.indices.end());
    const std::int64_t bytes = BytesOf(batch.views);
    moved_bytes += bytes;
    moved_transfers += bytes > 0 ? 1 : 0;
  }
  LOCKSTEP_RETURN_IF_ERROR(access->WriteBack(written));
  if (task.skip_unchanged) {
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (changed[i]) equal_[views[i].spec.name] = DigestOf(views[i]);
    }
  }
  if (moved_transfers == 0) return absl::OkStatus();
  ++counters.syncs;
  counters.transfers += moved_transfers;
  counters.bytes += moved_bytes;
  counters.last_transfers = moved_transfers;
  counters.last_bytes = moved_bytes;
  return absl::OkStatus();
}

absl::Status BroadcastParametersFrom(int root, const Arena& parameters, Model* model,
                                     Transport* transport) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<TensorAccess> frozen, model->FrozenParameters());
  std::vector<TensorView> views;
  // One memory needs no copy; the call still makes all wait for the root.
  if (!parameters.shared) {
    views.push_back({{.name = "(all trainable parameters)",
                      .dtype = DType::kFloat32,
                      .shape = {static_cast<std::int64_t>(parameters.values.size())}},
                     reinterpret_cast<std::byte*>(parameters.values.data())});
  }
  views.insert(views.end(), frozen->views().begin(), frozen->views().end());
  LOCKSTEP_RETURN_IF_ERROR(transport->Broadcast(views, root));
  // The root's tensors hold what they should already.
  if (transport->rank() == root) return absl::OkStatus();
  return frozen->WriteBack(IndicesOf(frozen->views()));
}

absl::Status CheckParametersEqual(const ShardPlan& plan, const Arena& parameters, Model* model,
                                  Transport* transport) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<TensorAccess> frozen, model->FrozenParameters());
  std::vector<std::string> names;
  std::vector<std::uint64_t> mine;
  if (!parameters.shared) {
    for (const Placement& placement : plan.placements) {
      names.push_back(placement.name);
      mine.push_back(Digester()
                         .Add(std::as_bytes(parameters.values.subspan(placement.offset,
                                                                      placement.elements)))
                         .Finish());
    }
  }
  for (const TensorView& view : frozen->views()) {
    names.push_back(view.spec.name);
    mine.push_back(DigestOf(view));
  }
  // Each rank broadcasts its digests, so that the error can name the ranks.
  std::vector<std::vector<std::uint64_t>> digests(transport->world_size(), mine);
  std::vector<TensorView> views;
  for (std::vector<std::uint64_t>& of_rank : digests) {
    views.push_back({{.name = "(digests of parameters)",
                      .dtype = DType::kUint64,
                      .shape = {static_cast<std::int64_t>(of_rank.size())}},
                     reinterpret_cast<std::byte*>(of_rank.data())});
  }
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < transport->world_size(); ++rank) {
    transfers.push_back({.root = rank, .views = std::span(&views[rank], 1)});
  }
  LOCKSTEP_RETURN_IF_ERROR(transport->Exchange(transfers));
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::vector<std::string> others;
    for (int rank = 1; rank < transport->world_size(); ++rank) {
      if (digests[rank][i] != digests[0][i]) others.push_back(absl::StrCat("rank ", rank));
    }
    if (others.empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "parameter '", names[i], "' on ", ListNames(others), " differs from rank 0's; replicas "
        "have drifted apart. Look for code that writes parameters on some ranks only; "
        "BroadcastParameters() makes them equal again in a new epoch"));
  }
  return absl::OkStatus();
}

absl::StatusOr<BufferDrift> MeasureDrift(Model* model, Transport* transport) {
  // Buffers without plain values can only be looked at in the manifest.
  LOCKSTEP_ASSIGN_OR_RETURN(const Manifest manifest, model->Describe());
  std::set<absl::string_view> measured;
  for (const TensorSpec& buffer : manifest.buffers) {
    if (buffer.dtype == DType::kFloat32 || buffer.dtype == DType::kFloat64) {
      measured.insert(buffer.name);
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<TensorAccess> access,
      model->Buffers([&](absl::string_view name) { return measured.contains(name); }));
  DoubleCopies low = CopyFloatBuffers(access->views());
  DoubleCopies high = low;
  LOCKSTEP_RETURN_IF_ERROR(transport->AllReduce(low.views(), ReduceOp::kMin));
  LOCKSTEP_RETURN_IF_ERROR(transport->AllReduce(high.views(), ReduceOp::kMax));
  BufferDrift drift;
  for (std::size_t buffer = 0; buffer < low.values.size(); ++buffer) {
    for (std::size_t i = 0; i < low.values[buffer].size(); ++i) {
      const double least = low.values[buffer][i];
      const double most = high.values[buffer][i];
      // Equal infinities have no difference, though they have no finite one.
      if (least == most || most - least <= drift.largest) continue;
      drift = {.largest = most - least, .buffer = low.specs[buffer].name};
    }
  }
  return drift;
}

}  // namespace lockstep
