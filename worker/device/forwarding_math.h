// ForwardingMath: a DeviceMath that passes everything on to another, for tests that
// change or watch a part of it.
#ifndef LOCKSTEP_WORKER_DEVICE_FORWARDING_MATH_H_
#define LOCKSTEP_WORKER_DEVICE_FORWARDING_MATH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/device/device_math.h"

namespace lockstep {

class ForwardingMath : public DeviceMath {
 public:
  explicit ForwardingMath(std::unique_ptr<DeviceMath> base) : base_(std::move(base)) {}

  bool on_stream() const override { return base_->on_stream(); }
  absl::Status UseStream(void* stream) override { return base_->UseStream(stream); }
  absl::Status WeightedSum(DType dtype, std::span<const std::byte* const> sources,
                           std::span<const float> weights, std::int64_t elements,
                           float* sums) override {
    return base_->WeightedSum(dtype, sources, weights, elements, sums);
  }
  std::unique_ptr<SumOfSquares> MakeSumOfSquares() override { return base_->MakeSumOfSquares(); }
  absl::StatusOr<std::shared_ptr<float[]>> Allocate(std::int64_t elements) override {
    return base_->Allocate(elements);
  }
  absl::Status Copy(std::span<const float> from, float* to) override {
    return base_->Copy(from, to);
  }
  absl::StatusOr<std::span<const std::byte>> ToHost(std::span<const std::byte> bytes,
                                                    std::vector<std::byte>& scratch) override {
    return base_->ToHost(bytes, scratch);
  }
  absl::Status FromHost(std::span<const std::byte> bytes, std::byte* to) override {
    return base_->FromHost(bytes, to);
  }
  absl::StatusOr<std::unique_ptr<ShardOptimizer>> MakeOptimizer(
      const OptimizerConfig& config, std::vector<GroupRange> ranges,
      std::int64_t short_begin) override {
    return base_->MakeOptimizer(config, std::move(ranges), short_begin);
  }

 private:
  const std::unique_ptr<DeviceMath> base_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_DEVICE_FORWARDING_MATH_H_
