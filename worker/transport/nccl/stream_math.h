// StreamMath: a DeviceMath that puts the host's arithmetic on a stream of FakeNccl, as that of a
// GPU is put on one of CUDA's: nothing is done when a call returns, and what is ordered by too
// few events comes out wrong.
//
// Memory is the fake's, or the host's. Used as DeviceMath says.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_STREAM_MATH_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_STREAM_MATH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "worker/device/forwarding_math.h"
#include "worker/device/host_math.h"
#include "worker/optim/shard_optimizer.h"
#include "worker/transport/nccl/fake/fake_nccl.h"

namespace lockstep {

class StreamMath final : public ForwardingMath {
 public:
  // `fake` must outlive it.
  explicit StreamMath(FakeNccl* fake)
      : ForwardingMath(std::make_unique<HostMath>()), queue_(std::make_shared<Queue>(fake)) {}

  // Puts `work` on the stream; on what it refers to until then nobody else works.
  void Launch(std::function<void()> work) { queue_->Launch(std::move(work)); }

  cudaStream_t stream() const { return queue_->stream; }

  bool on_stream() const override { return true; }
  absl::Status UseStream(void* stream) override {
    queue_->stream = static_cast<cudaStream_t>(stream);
    return absl::OkStatus();
  }
  absl::Status WeightedSum(DType dtype, std::span<const std::byte* const> sources,
                           std::span<const float> weights, std::int64_t elements,
                           float* sums) override {
    Launch([dtype, elements, sums, sources = std::vector(sources.begin(), sources.end()),
            weights = std::vector(weights.begin(), weights.end())] {
      HostMath().WeightedSum(dtype, sources, weights, elements, sums).IgnoreError();
    });
    return absl::OkStatus();
  }
  std::unique_ptr<SumOfSquares> MakeSumOfSquares() override {
    return std::make_unique<Squares>(queue_);
  }
  absl::Status Copy(std::span<const float> from, float* to) override {
    Launch([from, to] { HostMath().Copy(from, to).IgnoreError(); });
    return absl::OkStatus();
  }
  absl::StatusOr<std::span<const std::byte>> ToHost(std::span<const std::byte> bytes,
                                                    std::vector<std::byte>&) override {
    queue_->Wait();
    return bytes;
  }
  absl::Status FromHost(std::span<const std::byte> bytes, std::byte* to) override {
    queue_->Wait();
    return HostMath().FromHost(bytes, to);
  }
  absl::StatusOr<std::unique_ptr<ShardOptimizer>> MakeOptimizer(
      const OptimizerConfig& config, std::vector<GroupRange> ranges,
      std::int64_t short_begin) override {
    LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<ShardOptimizer> host,
                              HostMath().MakeOptimizer(config, std::move(ranges), short_begin));
    return std::make_unique<Optimizer>(queue_, std::move(host));
  }

 private:
  struct Queue {
    explicit Queue(FakeNccl* fake) : fake(fake) {}

    void Launch(std::function<void()> work) const { fake->Launch(stream, std::move(work)); }
    // For what was launched.
    void Wait() const {
      const auto done = std::make_shared<std::promise<void>>();
      Launch([done] { done->set_value(); });
      done->get_future().wait();
    }

    FakeNccl* const fake;
    cudaStream_t stream = nullptr;
  };

  class Squares final : public SumOfSquares {
   public:
    explicit Squares(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}

    absl::Status Add(std::span<const float> values) override {
      queue_->Launch([sum = sum_, values] { sum->Add(values).IgnoreError(); });
      return absl::OkStatus();
    }
    absl::StatusOr<double> Sum() override {
      queue_->Wait();
      return sum_->Sum();
    }

   private:
    const std::shared_ptr<Queue> queue_;
    const std::shared_ptr<SumOfSquares> sum_ = HostMath().MakeSumOfSquares();
  };

  class Optimizer final : public ShardOptimizer {
   public:
    Optimizer(std::shared_ptr<Queue> queue, std::shared_ptr<ShardOptimizer> host)
        : queue_(std::move(queue)), host_(std::move(host)) {}

    void BeginStep(float grad_scale) override {
      queue_->Launch([host = host_, grad_scale] { host->BeginStep(grad_scale); });
    }
    void Update(std::int64_t begin, std::span<const float> gradients, DType dtype,
                std::byte* params) override {
      queue_->Launch([=, host = host_] { host->Update(begin, gradients, dtype, params); });
    }
    absl::Status SetLearningRate(double lr) override {
      queue_->Wait();
      return host_->SetLearningRate(lr);
    }
    double learning_rate() const override { return host_->learning_rate(); }
    std::vector<StateSlot> state() override {
      queue_->Wait();
      return host_->state();
    }
    std::int64_t step() const override {
      queue_->Wait();
      return host_->step();
    }
    void set_step(std::int64_t step) override {
      queue_->Wait();
      host_->set_step(step);
    }
    std::int64_t elements() const override { return host_->elements(); }
    std::int64_t state_bytes() const override { return host_->state_bytes(); }

   private:
    const std::shared_ptr<Queue> queue_;
    const std::shared_ptr<ShardOptimizer> host_;
  };

  const std::shared_ptr<Queue> queue_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_STREAM_MATH_H_
