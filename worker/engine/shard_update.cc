#include "worker/engine/shard_update.h"

#include <cstdint>
#include <utility>

#include "common/base/status_macros.h"
#include "worker/optim/gradient_scale.h"

namespace lockstep {

ShardUpdate::ShardUpdate(DeviceMath* math, ShardOptimizer* optimizer, Transport* transport,
                         std::span<const BlockArenas> blocks)
    : math_(math), optimizer_(optimizer), transport_(transport), blocks_(blocks) {}

absl::StatusOr<std::optional<double>> ShardUpdate::Apply(const Agreement& agreement) {
  if (agreement.settings.max_grad_norm == 0) {
    LOCKSTEP_RETURN_IF_ERROR(InOnePass(agreement));
    return std::nullopt;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const double norm, Clipped(agreement));
  return norm;
}

absl::Status ShardUpdate::InOnePass(const Agreement& agreement) {
  const GradientScale scale =
      ScaleOf(/*squared_norm=*/0, agreement.samples, agreement.settings.loss_scale, /*max_norm=*/0);
  ShardOptimizer& optimizer = *optimizer_;
  optimizer.BeginStep(scale.factor);
  for (const BlockArenas& block : blocks_) {
    const Arena& parameters = block.parameters;
    const Shard& mine = OwnedOf(block);
    LOCKSTEP_RETURN_IF_ERROR(transport_->UpdateShards(
        block.gradients, parameters, block.shards, agreement.weights,
        [&](std::int64_t begin, std::span<const float> sums) {
          optimizer.Update(block.place + begin, sums, parameters.dtype,
                           parameters.at(mine.begin + begin));
        }));
  }
  return optimizer.EndStep();
}

absl::StatusOr<double> ShardUpdate::Clipped(const Agreement& agreement) {
  LOCKSTEP_ASSIGN_OR_RETURN(const double squared_norm, ReduceAndKeep(agreement));
  const GradientScale scale = ScaleOf(squared_norm, agreement.samples,
                                      agreement.settings.loss_scale,
                                      agreement.settings.max_grad_norm);
  optimizer_->BeginStep(scale.factor);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Arena& parameters = blocks_[i].parameters;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::span<const float> sums, RoomForSums(i));
    optimizer_->Update(blocks_[i].place, sums, parameters.dtype,
                       parameters.at(OwnedOf(blocks_[i]).begin));
    LOCKSTEP_RETURN_IF_ERROR(transport_->BroadcastFromOwners(parameters, blocks_[i].shards));
  }
  LOCKSTEP_RETURN_IF_ERROR(optimizer_->EndStep());
  return scale.norm;
}

absl::StatusOr<double> ShardUpdate::ReduceAndKeep(const Agreement& agreement) {
  const std::unique_ptr<SumOfSquares> own = math_->MakeSumOfSquares();
  absl::Status kept_all;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::span<float> kept, RoomForSums(i));
    LOCKSTEP_RETURN_IF_ERROR(transport_->ReduceToOwners(
        blocks_[i].gradients, blocks_[i].shards, agreement.weights,
        [&](std::int64_t begin, std::span<const float> sums) {
          kept_all.Update(own->Add(sums));
          // They may have been made there.
          if (sums.data() != kept.data() + begin) {
            kept_all.Update(math_->Copy(sums, kept.data() + begin));
          }
        }));
  }
  LOCKSTEP_RETURN_IF_ERROR(kept_all);
  LOCKSTEP_ASSIGN_OR_RETURN(double squared_norm, own->Sum());
  const TensorView norm = {{.name = "the gradient's squared norm", .dtype = DType::kFloat64},
                           reinterpret_cast<std::byte*>(&squared_norm)};
  LOCKSTEP_RETURN_IF_ERROR(transport_->AllReduce({&norm, 1}, ReduceOp::kSum));
  return squared_norm;
}

absl::StatusOr<std::span<float>> ShardUpdate::RoomForSums(std::size_t block) {
  const Arena& gradients = blocks_[block].gradients;
  const Shard& mine = OwnedOf(blocks_[block]);
  if (gradients.dtype == DType::kFloat32) {
    return gradients.floats().subspan(mine.begin, mine.elements());
  }
  std::shared_ptr<float[]>& room = short_sums_[block];
  if (room == nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(room, math_->Allocate(mine.elements()));
  }
  return std::span<float>(room.get(), mine.elements());
}

}  // namespace lockstep
