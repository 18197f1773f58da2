#include "worker/engine/parameter_sync.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/engine/content_reader.h"

namespace lockstep {
namespace {

std::vector<std::size_t> IndicesOf(std::span<const TensorView> views) {
  std::vector<std::size_t> indices(views.size());
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

struct NamedDigest {
  std::string name;
  std::uint64_t digest = 0;
};

// Of the parameters that ranks could hold differently.
absl::StatusOr<std::vector<NamedDigest>> DigestsOf(const ShardPlan& plan,
                                                   std::span<const BlockArenas> blocks,
                                                   const TensorAccess& frozen, DeviceMath* math) {
  std::vector<NamedDigest> digests;
  ContentReader contents(math);
  const auto add = [&](const TensorView& view) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::uint64_t digest, contents.Digest(view));
    digests.push_back({view.spec.name, digest});
    return absl::OkStatus();
  };
  for (const Placement& placement : plan.placements) {
    if (placement.elements == 0) continue;
    const std::size_t at = BlockAt(plan, placement.offset);
    const Arena& arena = blocks[at].parameters;
    if (arena.shared) continue;
    LOCKSTEP_RETURN_IF_ERROR(add(
        {.spec = {.name = placement.name, .dtype = arena.dtype, .shape = {placement.elements}},
         .data = arena.at(placement.offset - plan.blocks[at].begin),
         .on_device = true}));
  }
  for (const TensorView& view : frozen.views()) LOCKSTEP_RETURN_IF_ERROR(add(view));
  return digests;
}

}  // namespace

absl::Status BroadcastParametersFrom(int root, std::span<const BlockArenas> blocks,
                                     Model* model, Transport* transport) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<TensorAccess> frozen, model->FrozenParameters());
  std::vector<TensorView> views;
  // One memory needs no copy; the call still makes all wait for the root.
  for (const BlockArenas& block : blocks) {
    const Arena& arena = block.parameters;
    if (arena.shared) continue;
    views.push_back({.spec = {.name = absl::StrCat("(all trainable ", DTypeName(arena.dtype),
                                                   " parameters)"),
                              .dtype = arena.dtype,
                              .shape = {arena.elements}},
                     .data = arena.data,
                     .on_device = true});
  }
  views.insert(views.end(), frozen->views().begin(), frozen->views().end());
  LOCKSTEP_RETURN_IF_ERROR(transport->Broadcast(views, root));
  // The root's tensors hold what they should already.
  if (transport->rank() == root) return absl::OkStatus();
  return frozen->WriteBack(IndicesOf(frozen->views()));
}

absl::Status CheckParametersEqual(const ShardPlan& plan, std::span<const BlockArenas> blocks,
                                  Model* model, DeviceMath* math, Transport* transport) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<TensorAccess> frozen, model->FrozenParameters());
  // Each rank broadcasts its digests, so that the error can name the ranks.
  const int world_size = transport->world_size();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<NamedDigest> mine,
                            DigestsOf(plan, blocks, *frozen, math));
  std::vector<std::vector<NamedDigest>> digests(world_size, mine);
  std::vector<std::vector<TensorView>> views(world_size);
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < world_size; ++rank) {
    for (NamedDigest& named : digests[rank]) {
      views[rank].push_back({{.name = named.name, .dtype = DType::kUint64},
                             reinterpret_cast<std::byte*>(&named.digest)});
    }
    transfers.push_back({.root = rank, .views = views[rank]});
  }
  LOCKSTEP_RETURN_IF_ERROR(transport->Exchange(transfers));
  for (std::size_t i = 0; i < digests[0].size(); ++i) {
    std::vector<std::string> others;
    for (int rank = 1; rank < world_size; ++rank) {
      if (digests[rank][i].digest == digests[0][i].digest) continue;
      others.push_back(absl::StrCat("rank ", rank));
    }
    if (others.empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "parameter '", digests[0][i].name, "' on ", ListNames(others),
        " differs from rank 0's; replicas have drifted apart. Look for code that writes "
        "parameters on some ranks only; BroadcastParameters() makes them equal again in a new "
        "epoch"));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
