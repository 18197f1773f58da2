// Training: what the simulated workers compute: a small model, which samples a rank takes, and
// their gradients, as pure functions; and the serial reference of all that.
#ifndef LOCKSTEP_TESTS_SIM_TRAINING_H_
#define LOCKSTEP_TESTS_SIM_TRAINING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/manifest/manifest.h"
#include "common/sharding/shard_plan.h"
#include "worker/engine/vector_model.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/shard_optimizer.h"

namespace lockstep::sim {

struct Training {
  std::uint64_t seed = 0;
  OptimizerConfig optimizer;
  double max_grad_norm = 0;

  std::unique_ptr<VectorModel> NewModel() const;
  // How many samples behind the first `base` that were committed rank `rank` takes; together
  // at least one.
  std::int64_t SamplesOf(std::int64_t base, int rank, int world_size) const;
  // Of all ranks before `rank`: where its samples begin.
  std::int64_t FirstOf(std::int64_t base, int rank, int world_size) const;
  // The mean over the rank's samples, for each of `values` of parameter number `parameter`.
  std::vector<float> GradientOf(std::int64_t base, int rank, int world_size, int parameter,
                                std::span<const float> values) const;
};

// By parameter, in the model's order.
std::vector<std::vector<float>> ParametersOf(VectorModel& model);
const std::vector<std::string>& ParameterNames();

// What the parameters are behind each committed step, taken by one process on whole tensors.
// Thread-compatible.
class SerialReference final {
 public:
  explicit SerialReference(const Training& training);

  std::int64_t step() const { return optimizer_->step(); }
  std::int64_t samples() const { return samples_; }
  std::vector<std::vector<float>> parameters() const;
  // Behind the next step, if `world_size` ranks take it.
  std::unique_ptr<SerialReference> Next(int world_size) const;

 private:
  SerialReference(const SerialReference& other);

  const Training training_;
  Manifest manifest_;
  ShardPlan plan_;  // of one rank
  std::vector<float> flat_;
  std::unique_ptr<ShardOptimizer> optimizer_;
  std::int64_t samples_ = 0;
};

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_TRAINING_H_
