// DeviceMath: arithmetic on the memory that a transport's arenas are of.
//
// On the host it runs at once; on a GPU it is put on the transport's stream, in order with
// what the transport puts there, and pointers are the device's, which the host must
// not follow. It moves nothing among ranks. Used by one thread at a time: a transport may
// use it on its communication thread while a reduction is under way.
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

// The sum of squares of values that come in parts, in double. Not finite exactly if a
// value is not.
class SumOfSquares {
 public:
  virtual ~SumOfSquares() = default;
  virtual absl::Status Add(std::span<const float> values) = 0;
  // Waits for what was put on the stream.
  virtual absl::StatusOr<double> Sum() = 0;
};

class DeviceMath {
 public:
  virtual ~DeviceMath() = default;

  // Whether work is put on the stream of UseStream(): it is done in that stream's time, and those
  // who need it done must wait for the stream. Else it is done when a call returns.
  virtual bool on_stream() const { return false; }

  // What follows is put on this stream (a cudaStream_t), which lives until another is
  // given; null: the default one. No meaning on the host.
  virtual absl::Status UseStream(void* stream) { return absl::OkStatus(); }

  // sums[i] = sum over ranks of weights[r] * sources[r][i], each product and each sum
  // rounded to float, added in rank order: the same bits on every device. A rank of
  // weight 0 is not read. `dtype` IsTrainable(). `sums` may be one of the sources if
  // they are of float32.
  virtual absl::Status WeightedSum(DType dtype, std::span<const std::byte* const> sources,
                                   std::span<const float> weights, std::int64_t elements,
                                   float* sums) = 0;

  // Of values in this memory; does not outlive this object.
  virtual std::unique_ptr<SumOfSquares> MakeSumOfSquares() = 0;

  // Zeroed memory of the device, freed with the last pointer.
  // Errors: ResourceExhausted: there is not that much.
  virtual absl::StatusOr<std::shared_ptr<float[]>> Allocate(std::int64_t elements) = 0;

  // Within this memory; the two do not overlap.
  virtual absl::Status Copy(std::span<const float> from, float* to) = 0;

  // `bytes` of this memory where the host can read them, until they or `scratch` change:
  // there, or on the host itself where they lie. Waits for all that the device was
  // given, on whatever stream.
  virtual absl::StatusOr<std::span<const std::byte>> ToHost(std::span<const std::byte> bytes,
                                                            std::vector<std::byte>& scratch) = 0;

  // The other way; waits until `bytes` are no longer used.
  virtual absl::Status FromHost(std::span<const std::byte> bytes, std::byte* to) = 0;

  // As ShardOptimizer::Create(), for parameters and sums in this memory. The state
  // lies in it too.
  virtual absl::StatusOr<std::unique_ptr<ShardOptimizer>> MakeOptimizer(
      const OptimizerConfig& config, std::vector<GroupRange> ranges,
      std::int64_t short_begin) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_DEVICE_DEVICE_MATH_H_
