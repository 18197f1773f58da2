// HostMath: DeviceMath where arenas lie in the host's memory. It has no state.
#ifndef LOCKSTEP_WORKER_DEVICE_HOST_MATH_H_
#define LOCKSTEP_WORKER_DEVICE_HOST_MATH_H_

#include "worker/device/device_math.h"

namespace lockstep {

class HostMath final : public DeviceMath {
 public:
  absl::Status WeightedSum(DType dtype, std::span<const std::byte* const> sources,
                           std::span<const float> weights, std::int64_t elements,
                           float* sums) override;
  // Its sum does not depend on how the values are cut into parts.
  std::unique_ptr<SumOfSquares> MakeSumOfSquares() override;
  absl::StatusOr<std::shared_ptr<float[]>> Allocate(std::int64_t elements) override;
  absl::Status Copy(std::span<const float> from, float* to) override;
  absl::StatusOr<std::span<const std::byte>> ToHost(std::span<const std::byte> bytes,
                                                    std::vector<std::byte>& scratch) override;
  absl::Status FromHost(std::span<const std::byte> bytes, std::byte* to) override;
  absl::StatusOr<std::unique_ptr<ShardOptimizer>> MakeOptimizer(const OptimizerConfig& config,
                                                                std::vector<GroupRange> ranges,
                                                                std::int64_t short_begin) override;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_DEVICE_HOST_MATH_H_
