// VectorModel: a Model over std::vectors, for tests. Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_VECTOR_MODEL_H_
#define LOCKSTEP_WORKER_ENGINE_VECTOR_MODEL_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "worker/engine/model.h"

namespace lockstep {

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::kInt64;
};

class VectorModel final : public Model {
 public:
  void AddParameter(const std::string& name, std::vector<float> values) {
    parameters_.push_back({Spec<float>(name, values.size()), std::move(values), {}, {}});
  }
  void AddFrozenParameter(const std::string& name, const std::vector<float>& values) {
    frozen_.push_back(Bytes(name, values));
  }
  template <typename T>
  void AddBuffer(const std::string& name, const std::vector<T>& values) {
    buffers_.push_back(Bytes(name, values));
  }

  // Where the values are now: in the arena once a parameter is adopted.
  std::span<float> parameter(const std::string& name) { return Find(name).now(); }
  // Only while adopted.
  std::span<float> gradient(const std::string& name) { return Find(name).gradient; }
  std::vector<float> frozen(const std::string& name) { return Values<float>(frozen_, name); }
  template <typename T>
  std::vector<T> buffer(const std::string& name) {
    return Values<T>(buffers_, name);
  }
  // In place if type and size are the same.
  template <typename T>
  void SetBuffer(const std::string& name, const std::vector<T>& values) {
    for (Tensor& tensor : buffers_) {
      if (tensor.spec.name != name) continue;
      Tensor made = Bytes(name, values);
      if (made.spec == tensor.spec) {
        std::ranges::copy(made.bytes, tensor.bytes.begin());
      } else {
        tensor = std::move(made);
      }
    }
  }
  void SetFrozen(const std::string& name, const std::vector<float>& values) {
    for (Tensor& tensor : frozen_) {
      if (tensor.spec.name == name) tensor = Bytes(name, values);
    }
  }
  // The next CollectGradients() returns it.
  void FailNextCollect(absl::Status status) { next_collect_ = std::move(status); }
  bool adopted() const { return adopted_; }
  // The tensors that the last WriteBack() was about.
  const std::vector<std::string>& written() const { return written_; }
  // How often buffers were found, not renewed.
  int found() const { return found_; }
  // What the last Adopt() was asked for.
  InitialValues initial() const { return initial_; }

  absl::StatusOr<Manifest> Describe() const override {
    Manifest manifest;
    for (const Parameter& parameter : parameters_) {
      manifest.parameters.push_back({parameter.spec, /*trainable=*/true});
    }
    for (const Tensor& tensor : frozen_) {
      manifest.parameters.push_back({tensor.spec, /*trainable=*/false});
    }
    for (const Tensor& tensor : buffers_) manifest.buffers.push_back(tensor.spec);
    return manifest;
  }

  absl::Status Adopt(const ShardPlan& plan, std::span<const BlockMemory> memory,
                     InitialValues initial) override {
    LOCKSTEP_CHECK(plan.placements.size() == parameters_.size());
    adopted_ = true;
    initial_ = initial;
    settled_ = initial == InitialValues::kCopyIn;
    if (memory.empty()) return absl::OkStatus();
    LOCKSTEP_CHECK(memory.size() == 1 && memory[0].block.dtype == DType::kFloat32);
    const auto floats = [&](std::byte* data) {
      return std::span(reinterpret_cast<float*>(data),
                       static_cast<std::size_t>(plan.flat_elements));
    };
    const std::span<float> parameters = floats(memory[0].parameters);
    const std::span<float> gradients = floats(memory[0].gradients);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Placement& placement = plan.placements[i];
      LOCKSTEP_CHECK(placement.name == parameters_[i].spec.name);
      parameters_[i].arena = parameters.subspan(placement.offset, placement.elements);
      parameters_[i].gradient = gradients.subspan(placement.offset, placement.elements);
      if (initial == InitialValues::kCopyIn) {
        std::ranges::copy(parameters_[i].owned, parameters_[i].arena.begin());
      }
    }
    return absl::OkStatus();
  }

  void Settle() override { settled_ = true; }

  void Release() override {
    for (Parameter& parameter : parameters_) {
      if (settled_) parameter.owned.assign(parameter.arena.begin(), parameter.arena.end());
      parameter.arena = {};
      parameter.gradient = {};
    }
    adopted_ = false;
  }

  absl::StatusOr<GradientBound> CollectGradients() override {
    if (!next_collect_.ok()) return std::exchange(next_collect_, {});
    GradientBound bound;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      for (const float value : parameters_[i].gradient) {
        if (!std::isfinite(value) && bound.not_finite == kAllFinite) {
          bound.not_finite = static_cast<std::int64_t>(i);
        }
        bound.largest = std::max(bound.largest, std::fabs(value));
      }
    }
    return bound;
  }

  void ClearGradients() override {
    for (Parameter& parameter : parameters_) std::ranges::fill(parameter.gradient, 0.0f);
  }

  absl::StatusOr<std::unique_ptr<TensorAccess>> Buffers(
      const std::function<bool(absl::string_view)>& selects) override {
    ++found_;
    return std::make_unique<Views>(&buffers_, selects, &written_);
  }

  absl::StatusOr<std::unique_ptr<TensorAccess>> FrozenParameters() override {
    return std::make_unique<Views>(&frozen_, [](absl::string_view) { return true; }, &written_);
  }

 private:
  struct Parameter {
    TensorSpec spec;
    std::vector<float> owned;
    std::span<float> arena;
    std::span<float> gradient;

    std::span<float> now() { return arena.data() != nullptr ? arena : std::span<float>(owned); }
  };
  struct Tensor {
    TensorSpec spec;
    std::vector<std::byte> bytes;

    TensorView view() { return {spec, bytes.data()}; }
  };
  class Views final : public TensorAccess {
   public:
    Views(std::vector<Tensor>* tensors, const std::function<bool(absl::string_view)>& selects,
          std::vector<std::string>* written)
        : tensors_(tensors), written_(written), all_(ViewAll()) {
      for (const TensorView& view : all_) {
        if (selects(view.spec.name)) views_.push_back(view);
      }
    }

    std::span<const TensorView> views() const override { return views_; }
    bool Renew() override {
      return std::ranges::equal(all_, ViewAll(), [](const TensorView& a, const TensorView& b) {
        return a.spec == b.spec && a.data == b.data;
      });
    }
    absl::Status WriteBack(std::span<const std::size_t> written) override {
      written_->clear();
      for (const std::size_t i : written) written_->push_back(views_[i].spec.name);
      return absl::OkStatus();
    }

   private:
    std::vector<TensorView> ViewAll() const {
      std::vector<TensorView> views;
      for (Tensor& tensor : *tensors_) views.push_back(tensor.view());
      return views;
    }

    std::vector<Tensor>* const tensors_;
    std::vector<std::string>* const written_;
    const std::vector<TensorView> all_;
    std::vector<TensorView> views_;
  };

  template <typename T>
  static TensorSpec Spec(const std::string& name, std::size_t elements) {
    return {name, DTypeOf<T>::value, {static_cast<std::int64_t>(elements)}};
  }
  template <typename T>
  static Tensor Bytes(const std::string& name, const std::vector<T>& values) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    return {Spec<T>(name, values.size()), {bytes.begin(), bytes.end()}};
  }
  template <typename T>
  static std::vector<T> Values(const std::vector<Tensor>& tensors, const std::string& name) {
    for (const Tensor& tensor : tensors) {
      if (tensor.spec.name != name) continue;
      std::vector<T> values(tensor.bytes.size() / sizeof(T));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
      return values;
    }
    LOCKSTEP_CHECK(false && "no tensor of that name");
    return {};
  }
  Parameter& Find(const std::string& name) {
    const auto found = std::ranges::find_if(
        parameters_, [&](const Parameter& parameter) { return parameter.spec.name == name; });
    LOCKSTEP_CHECK(found != parameters_.end());
    return *found;
  }

  std::vector<Parameter> parameters_;
  std::vector<Tensor> frozen_;
  std::vector<Tensor> buffers_;
  std::vector<std::string> written_;
  int found_ = 0;
  absl::Status next_collect_;
  bool adopted_ = false;
  bool settled_ = true;
  InitialValues initial_ = InitialValues::kCopyIn;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_VECTOR_MODEL_H_
