#include "worker/torch/torch_math.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/mul.h"
#include "ATen/ops/scalar_tensor.h"
#include "ATen/ops/sum.h"
#include "ATen/ops/zeros.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/torch/torch_device.h"
#include "worker/torch/torch_optimizer.h"

namespace lockstep {
namespace {

class TorchSumOfSquares final : public SumOfSquares {
 public:
  explicit TorchSumOfSquares(std::shared_ptr<TorchDevice> device) : device_(std::move(device)) {}

  absl::Status Add(std::span<const float> values) override {
    return device_->Run("summing squares", [&] {
      if (!total_.defined()) {
        total_ = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device_->device()));
      }
      const auto elements = static_cast<std::int64_t>(values.size());
      for (std::int64_t start = 0; start < elements; start += kTileElements) {
        const std::int64_t n = std::min(kTileElements, elements - start);
        const at::Tensor part = device_->View(values.data() + start, n, at::kFloat);
        total_.add_(at::sum(part.to(at::kDouble).square_()));
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<double> Sum() override {
    if (!total_.defined()) return 0.0;
    return device_->Run("reading a sum of squares", [&]() -> absl::StatusOr<double> {
      return total_.item<double>();
    });
  }

 private:
  const std::shared_ptr<TorchDevice> device_;
  at::Tensor total_;  // one double on the device
};

class TorchMath final : public DeviceMath {
 public:
  explicit TorchMath(std::shared_ptr<TorchDevice> device) : device_(std::move(device)) {}

  bool on_stream() const override { return !device_->device().is_cpu(); }

  absl::Status UseStream(void* stream) override {
    device_->UseStream(stream);
    return absl::OkStatus();
  }

  absl::Status WeightedSum(DType dtype, std::span<const std::byte* const> sources,
                           std::span<const float> weights, std::int64_t elements,
                           float* sums) override {
    LOCKSTEP_CHECK(IsTrainable(dtype) && sources.size() == weights.size());
    return device_->Run("summing gradients", [&] {
      const std::vector<Term> terms = TermsOf(sources, weights);
      const auto options = at::TensorOptions().dtype(at::kFloat).device(device_->device());
      const std::int64_t tile = std::min(kTileElements, elements);
      const at::Tensor products = at::empty({tile}, options);
      // A source that is read after sums were begun must not be where they go.
      const bool apart = std::ranges::any_of(terms, [&](const Term& term) {
        return &term != terms.data() && term.source == reinterpret_cast<std::byte*>(sums);
      });
      const at::Tensor held = at::empty({apart ? tile : 0}, options);
      for (std::int64_t start = 0; start < elements; start += kTileElements) {
        const std::int64_t n = std::min(kTileElements, elements - start);
        const at::Tensor into = device_->View(sums + start, n, at::kFloat);
        const at::Tensor sum = apart ? held.narrow(0, 0, n) : into;
        if (terms.empty()) sum.zero_();
        for (const Term& term : terms) {
          const bool begins = &term == terms.data();
          const at::Tensor product = begins ? sum : products.narrow(0, 0, n);
          Multiply(dtype, term, start, product);
          // In a kernel of its own, so that nothing fuses it with the multiplication.
          if (!begins) sum.add_(product);
        }
        if (apart) into.copy_(sum);
      }
      return absl::OkStatus();
    });
  }

  std::unique_ptr<SumOfSquares> MakeSumOfSquares() override {
    return std::make_unique<TorchSumOfSquares>(device_);
  }

  absl::StatusOr<std::shared_ptr<float[]>> Allocate(std::int64_t elements) override {
    LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor zeros, device_->Zeros(elements));
    const auto owner = std::make_shared<at::Tensor>(std::move(zeros));
    return std::shared_ptr<float[]>(owner, owner->mutable_data_ptr<float>());
  }

  absl::Status Copy(std::span<const float> from, float* to) override {
    return device_->Run("copying sums", [&] {
      const auto elements = static_cast<std::int64_t>(from.size());
      device_->View(to, elements, at::kFloat)
          .copy_(device_->View(from.data(), elements, at::kFloat));
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::span<const std::byte>> ToHost(std::span<const std::byte> bytes,
                                                    std::vector<std::byte>& scratch) override {
    if (device_->device().is_cpu()) return bytes;
    return device_->Run("copying to the host",
                        [&]() -> absl::StatusOr<std::span<const std::byte>> {
                          device_->Wait();
                          scratch.resize(bytes.size());
                          const auto size = static_cast<std::int64_t>(bytes.size());
                          at::from_blob(scratch.data(), {size}, at::kByte)
                              .copy_(device_->View(bytes.data(), size, at::kByte));
                          return scratch;
                        });
  }

  absl::Status FromHost(std::span<const std::byte> bytes, std::byte* to) override {
    return device_->Run("copying from the host", [&] {
      const auto size = static_cast<std::int64_t>(bytes.size());
      at::Tensor there = device_->View(to, size, at::kByte);
      // What is const is only read.
      there.copy_(at::from_blob(const_cast<std::byte*>(bytes.data()), {size}, at::kByte));
      device_->Wait();
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::unique_ptr<ShardOptimizer>> MakeOptimizer(
      const OptimizerConfig& config, std::vector<GroupRange> ranges,
      std::int64_t short_begin) override {
    return MakeTorchOptimizer(device_, config, std::move(ranges), short_begin);
  }

 private:
  // A rank that counts.
  struct Term {
    const std::byte* source = nullptr;
    float weight = 0;
  };

  static std::vector<Term> TermsOf(std::span<const std::byte* const> sources,
                                   std::span<const float> weights) {
    std::vector<Term> terms;
    for (std::size_t rank = 0; rank < sources.size(); ++rank) {
      if (weights[rank] != 0) terms.push_back({sources[rank], weights[rank]});
    }
    return terms;
  }

  void Multiply(DType dtype, const Term& term, std::int64_t start, at::Tensor product) const {
    const at::Tensor source = device_->View(term.source + start * ElementBytes(dtype),
                                            product.numel(), ToScalarType(dtype));
    if (dtype == DType::kFloat32) {
      at::mul_out(product, source, at::scalar_tensor(term.weight, at::kFloat));
    } else {
      // Their product with a float would be rounded to the short type.
      product.copy_(source);
      product.mul_(term.weight);
    }
  }

  const std::shared_ptr<TorchDevice> device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceMath>> MakeTorchMath(c10::Device device) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<TorchDevice> found, TorchDevice::Create(device));
  return std::make_unique<TorchMath>(std::move(found));
}

}  // namespace lockstep
