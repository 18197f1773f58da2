#include "worker/device/host_math.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "worker/combine/combine.h"
#include "worker/memory/host_memory.h"
#include "worker/optim/squared_norm.h"

namespace lockstep {
namespace {

class HostSumOfSquares final : public SumOfSquares {
 public:
  absl::Status Add(std::span<const float> values) override {
    norm_.Add(values);
    return absl::OkStatus();
  }
  absl::StatusOr<double> Sum() override { return norm_.sum(); }

 private:
  SquaredNorm norm_;
};

}  // namespace

absl::Status HostMath::WeightedSum(DType dtype, std::span<const std::byte* const> sources,
                                   std::span<const float> weights, std::int64_t elements,
                                   float* sums) {
  lockstep::WeightedSum(dtype, sources, weights, elements,
                        [&](std::int64_t begin, std::span<const float> range) {
                          std::ranges::copy(range, sums + begin);
                        });
  return absl::OkStatus();
}

std::unique_ptr<SumOfSquares> HostMath::MakeSumOfSquares() {
  return std::make_unique<HostSumOfSquares>();
}

absl::StatusOr<std::shared_ptr<float[]>> HostMath::Allocate(std::int64_t elements) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      HostMemory memory,
      HostMemory::Allocate(elements * static_cast<std::int64_t>(sizeof(float))));
  const auto owner = std::make_shared<HostMemory>(std::move(memory));
  return std::shared_ptr<float[]>(owner, reinterpret_cast<float*>(owner->data()));
}

absl::Status HostMath::Copy(std::span<const float> from, float* to) {
  std::ranges::copy(from, to);
  return absl::OkStatus();
}

absl::StatusOr<std::span<const std::byte>> HostMath::ToHost(std::span<const std::byte> bytes,
                                                            std::vector<std::byte>& scratch) {
  return bytes;
}

absl::Status HostMath::FromHost(std::span<const std::byte> bytes, std::byte* to) {
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ShardOptimizer>> HostMath::MakeOptimizer(
    const OptimizerConfig& config, std::vector<GroupRange> ranges, std::int64_t short_begin) {
  return ShardOptimizer::Create(config, std::move(ranges), short_begin);
}

}  // namespace lockstep
