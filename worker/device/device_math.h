// DeviceMath: arithmetic on the memory that a transport's arenas are of.
//
// On the host it runs at once; on a GPU it is put on the transport's stream, in order with
// what the transport puts there, and pointers are the device's, which the host must
// not follow. Used by one thread.
#ifndef LOCKSTEP_WORKER_DEVICE_DEVICE_MATH_H_
#define LOCKSTEP_WORKER_DEVICE_DEVICE_MATH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/dtype.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/shard_optimizer.h"

namespace lockstep {

class DeviceMath {
 public:
  virtual ~DeviceMath() = default;

  // What follows is put on this stream (a cudaStream_t); no meaning on the host.
  virtual absl::Status UseStream(void* stream) { return absl::OkStatus(); }

  // sums[i] = sum over ranks of weights[r] * sources[r][i], each product and each sum
  // rounded to float, added in rank order: the same bits on every device. A rank of
  // weight 0 is not read. `dtype` IsTrainable(). `sums` may be one of the sources if
  // they are of float32.
  virtual absl::Status WeightedSum(DType dtype, std::span<const std::byte* const> sources,
                                   std::span<const float> weights, std::int64_t elements,
                                   float* sums) = 0;

  // The sum of squares, in double. Waits for what was put on the stream.
  virtual absl::StatusOr<double> SquaredNorm(std::span<const float> values) = 0;

  // As ShardOptimizer::Create(), for parameters and sums in this memory. The state
  // lies in it too.
  virtual absl::StatusOr<std::unique_ptr<ShardOptimizer>> MakeOptimizer(
      const OptimizerConfig& config, std::vector<GroupRange> ranges,
      std::int64_t short_begin) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_DEVICE_DEVICE_MATH_H_
