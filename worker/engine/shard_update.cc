#include "worker/engine/shard_update.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/sharding/replicas.h"
#include "worker/optim/gradient_scale.h"

namespace lockstep {

absl::StatusOr<std::optional<double>> ShardUpdate::Apply(const Agreement& agreement) {
  const bool clips = agreement.settings.max_grad_norm != 0;
  if (!clips && membership_.proposal.optimizer_replicas < 2) {
    LOCKSTEP_RETURN_IF_ERROR(InOnePass(agreement));
    return std::nullopt;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const double squared_norm, Prepare(agreement));
  // Whoever is here has prepared the step, and knows it of all.
  if (has_buddies()) LOCKSTEP_RETURN_IF_ERROR(membership_.transport->Exchange({}));
  Reach(StepPhase::kCommitted);
  membership_.commit.BeginUpdate();
  for (ShardCopy& copy : membership_.copies) {
    LOCKSTEP_RETURN_IF_ERROR(UpdateCopy(copy, membership_.blocks, membership_.prepared_factor));
    Reach(StepPhase::kUpdating);
  }
  membership_.commit.Updated();
  LOCKSTEP_RETURN_IF_ERROR(Spread());
  if (!clips) return std::nullopt;
  return ScaleOf(squared_norm, agreement.samples, agreement.settings.loss_scale,
                 agreement.settings.max_grad_norm)
      .norm;
}

absl::Status ShardUpdate::InOnePass(const Agreement& agreement) {
  const GradientScale scale =
      ScaleOf(/*squared_norm=*/0, agreement.samples, agreement.settings.loss_scale, /*max_norm=*/0);
  ShardCopy& own = membership_.own();
  ShardOptimizer& optimizer = *own.optimizer;
  Reach(StepPhase::kUpdating);
  membership_.commit.BeginUpdate(agreement.samples);
  optimizer.BeginStep(scale.factor);
  for (std::size_t i = 0; i < membership_.blocks.size(); ++i) {
    const Arena& parameters = membership_.blocks[i].parameters;
    const ShardCopy::Part& part = own.parts[i];
    LOCKSTEP_RETURN_IF_ERROR(membership_.transport->UpdateShards(
        membership_.blocks[i].gradients, parameters, membership_.blocks[i].shards,
        agreement.weights, [&](std::int64_t begin, std::span<const float> sums) {
          optimizer.Update(part.place + begin, sums, parameters.dtype,
                           parameters.at(part.elements.begin + begin));
        }));
  }
  LOCKSTEP_RETURN_IF_ERROR(optimizer.EndStep());
  membership_.commit.Updated();
  return absl::OkStatus();
}

absl::StatusOr<double> ShardUpdate::Prepare(const Agreement& agreement) {
  Reach(StepPhase::kReducing);
  LOCKSTEP_ASSIGN_OR_RETURN(const double squared_norm, ReduceAndKeep(agreement));
  Reach(StepPhase::kPreparing);
  if (has_buddies()) LOCKSTEP_RETURN_IF_ERROR(PassSumsToBuddies());
  membership_.prepared_factor =
      ScaleOf(squared_norm, agreement.samples, agreement.settings.loss_scale,
              agreement.settings.max_grad_norm)
          .factor;
  membership_.commit.Prepared(agreement.samples);
  Reach(StepPhase::kPrepared);
  return squared_norm;
}

absl::StatusOr<double> ShardUpdate::ReduceAndKeep(const Agreement& agreement) {
  DeviceMath& math = *membership_.math;
  const bool clips = agreement.settings.max_grad_norm != 0;
  LOCKSTEP_RETURN_IF_ERROR(RoomForSums(membership_.blocks, &math, membership_.own()));
  const std::unique_ptr<SumOfSquares> own = math.MakeSumOfSquares();
  absl::Status kept_all;
  for (std::size_t i = 0; i < membership_.blocks.size(); ++i) {
    const BlockArenas& block = membership_.blocks[i];
    const std::span<float> kept = membership_.own().parts[i].sums;
    LOCKSTEP_RETURN_IF_ERROR(membership_.transport->ReduceToOwners(
        block.gradients, block.shards, agreement.weights,
        [&](std::int64_t begin, std::span<const float> sums) {
          if (clips) kept_all.Update(own->Add(sums));
          // They may have been made there.
          if (sums.data() != kept.data() + begin) {
            kept_all.Update(math.Copy(sums, kept.data() + begin));
          }
        }));
  }
  LOCKSTEP_RETURN_IF_ERROR(kept_all);
  if (!clips) return 0.0;
  LOCKSTEP_ASSIGN_OR_RETURN(double squared_norm, own->Sum());
  const TensorView norm = {{.name = "the gradient's squared norm", .dtype = DType::kFloat64},
                           reinterpret_cast<std::byte*>(&squared_norm)};
  LOCKSTEP_RETURN_IF_ERROR(membership_.transport->AllReduce({&norm, 1}, ReduceOp::kSum));
  return squared_norm;
}

absl::Status ShardUpdate::PassSumsToBuddies() {
  Membership& m = membership_;
  for (ShardCopy& copy : m.copies) {
    if (copy.owner == m.rank) continue;
    LOCKSTEP_RETURN_IF_ERROR(RoomForSums(m.blocks, m.math.get(), copy));
    // Before anybody can know of the commit, and write to them.
    LOCKSTEP_RETURN_IF_ERROR(TakeParameters(m.blocks, m.math.get(), copy));
  }
  std::vector<Passage> passages;
  for (std::size_t i = 0; i < m.blocks.size(); ++i) {
    for (int owner = 0; owner < m.world_size(); ++owner) {
      const std::int64_t elements = m.blocks[i].shards[owner].elements();
      if (elements == 0) continue;
      Passage passage = {
          .from = owner,
          .to = BuddyOf(owner, m.world_size(), m.proposal.optimizer_replicas),
          .view = {.spec = {.name = absl::StrCat("the sums of shard ", owner, ", block ", i),
                            .dtype = DType::kFloat32,
                            .shape = {elements}},
                   .on_device = true}};
      for (ShardCopy& copy : m.copies) {
        if (copy.owner != owner) continue;
        passage.view.data = reinterpret_cast<std::byte*>(copy.parts[i].sums.data());
      }
      passages.push_back(std::move(passage));
    }
  }
  return m.transport->Pass(passages);
}

absl::Status ShardUpdate::Spread() {
  Reach(StepPhase::kSpreading);
  for (const BlockArenas& block : membership_.blocks) {
    LOCKSTEP_RETURN_IF_ERROR(
        membership_.transport->BroadcastFromOwners(block.parameters, block.shards));
  }
  return absl::OkStatus();
}

bool ShardUpdate::has_buddies() const {
  return BuddyOf(membership_.rank, membership_.world_size(),
                 membership_.proposal.optimizer_replicas) >= 0;
}

}  // namespace lockstep
