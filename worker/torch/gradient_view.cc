#include "worker/torch/gradient_view.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "ATen/ops/aminmax.h"
#include "ATen/ops/maximum.h"
#include "ATen/ops/stack.h"
#include "c10/core/GradMode.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/variable.h"
#include "worker/numeric/magnitude.h"
#include "worker/torch/scalar_types.h"

namespace lockstep {

using torch::autograd::PostAccumulateGradHook;
namespace autograd = torch::autograd::impl;

class GradientView::Hook final : public PostAccumulateGradHook {
 public:
  Hook(std::shared_ptr<GradientView> view, std::unique_ptr<PostAccumulateGradHook> before)
      : view_(std::move(view)), before_(std::move(before)) {}

  void operator()(const at::Tensor& parameter) override {
    if (before_ != nullptr) (*before_)(parameter);
    const at::Tensor& grad = parameter.grad();
    // A gradient that is to be differentiated itself stays with its graph; Collect()
    // takes its values.
    if (!grad.defined() || grad.requires_grad()) return;
    // ChangedSinceTold() finds that this one came after the one that was told of.
    if (view_->told()) return;
    view_->Take(parameter);
    const bool told_next = view_->in_place_ != nullptr;
    // On the CPU now, while it is in the caches; elsewhere late is as good.
    if (view_->place_.is_cpu() || told_next) view_->Measure();
    if (!told_next) return;
    view_->told_version_ = view_->place_._version();
    view_->in_place_();
  }

  const GradientView* view() const { return view_.get(); }
  std::unique_ptr<PostAccumulateGradHook>& before() { return before_; }

 private:
  const std::shared_ptr<GradientView> view_;
  std::unique_ptr<PostAccumulateGradHook> before_;
};

bool IsView(const at::Tensor& tensor, const at::Tensor& of) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         tensor.scalar_type() == of.scalar_type() && tensor.device() == of.device() &&
         tensor.sizes() == of.sizes() && tensor.is_contiguous() &&
         (tensor.numel() == 0 || tensor.const_data_ptr() == of.const_data_ptr());
}

GradientView::GradientView(at::Tensor place)
    : place_(std::move(place)), measured_version_(place_._version()) {}

void GradientView::Attach(const std::shared_ptr<GradientView>& view, const at::Tensor& parameter) {
  auto before = std::move(autograd::post_acc_grad_hooks(parameter));
  autograd::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(view, std::move(before)));
}

void GradientView::Detach(const GradientView& view, const at::Tensor& parameter) {
  // A model that adopted the parameter since has its own in front. What training code
  // attached since took this one away.
  auto* at = &autograd::post_acc_grad_hooks(parameter);
  for (Hook* hook; (hook = dynamic_cast<Hook*>(at->get())) != nullptr; at = &hook->before()) {
    if (hook->view() != &view) continue;
    auto before = std::move(hook->before());
    *at = std::move(before);
    return;
  }
}

void GradientView::Collect(const at::Tensor& parameter) {
  const c10::AutoGradMode no_grad(false);
  in_place_ = nullptr;
  if (told()) {
    told_version_ = kNone;
    return;
  }
  if (parameter.grad().defined()) {
    Take(parameter);
    // Before training code is refused something, it has the benefit of the doubt.
    if (std::isinf(largest_) || !place_.is_cpu()) measured_version_ = kNone;
    Measure();
  } else {
    // Not only once: between steps an owner keeps its sums here.
    place_.zero_();
    largest_ = 0;
    measured_there_ = at::Tensor();
    measured_version_ = place_._version();
  }
}

void GradientView::FinishMeasuring(std::span<GradientView* const> views) {
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> there;
  for (const GradientView* view : views) {
    if (view->measured_there_.defined()) there.push_back(view->measured_there_);
  }
  if (there.empty()) return;
  // One copy, which waits for the device, instead of one for each.
  const at::Tensor here = at::stack(there).cpu();
  const float* next = here.const_data_ptr<float>();
  for (GradientView* view : views) {
    if (!view->measured_there_.defined()) continue;
    const float largest = *next++;
    view->largest_ = std::isfinite(largest) ? largest : std::numeric_limits<float>::infinity();
    view->measured_there_ = at::Tensor();
  }
}

void GradientView::TellWhenInPlace(std::function<void()> in_place) {
  in_place_ = std::move(in_place);
  told_version_ = kNone;
}

bool GradientView::ChangedSinceTold(const at::Tensor& parameter) const {
  return told() && (!IsView(parameter.grad(), place_) || place_._version() != told_version_);
}

void GradientView::Take(const at::Tensor& parameter) {
  at::Tensor& grad = parameter.mutable_grad();
  if (!IsView(grad, place_)) {
    const c10::AutoGradMode no_grad(false);
    if (place_.is_cpu() && grad.layout() == at::kStrided && grad.is_contiguous() &&
        !grad.is_neg() && grad.scalar_type() == place_.scalar_type() &&
        grad.device() == place_.device() && grad.numel() == place_.numel()) {
      largest_ = CopyAndFindLargest(FromScalarType(place_.scalar_type()),
                                    static_cast<const std::byte*>(grad.const_data_ptr()),
                                    static_cast<std::byte*>(place_.mutable_data_ptr()),
                                    place_.numel());
      place_.unsafeGetTensorImpl()->bump_version();
      measured_version_ = place_._version();
    } else {
      place_.copy_(grad.layout() == at::kStrided ? grad.detach() : grad.detach().to_dense());
    }
    grad = place_;
  }
}

void GradientView::Measure() {
  if (place_._version() == measured_version_) return;
  measured_version_ = place_._version();
  if (!place_.is_cpu()) {
    // NaN wins in the extremes, and there is no copy of the size of the place.
    if (place_.numel() == 0) return;
    const auto [least, most] = place_.aminmax();
    measured_there_ = at::maximum(most, least.neg()).to(at::kFloat);
    return;
  }
  largest_ = LargestMagnitude(FromScalarType(place_.scalar_type()),
                              static_cast<const std::byte*>(place_.const_data_ptr()),
                              place_.numel());
}

}  // namespace lockstep
