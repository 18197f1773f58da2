// GradientView: where the gradient of one parameter has to be for a step.
//
// Once it is attached, what backward makes of the parameter's gradient is moved there
// and measured while it is in the caches. Whatever training code does to `.grad` in the
// meantime, Collect() has the last word. What was written past the version counter of
// `.grad` (through a raw pointer or data(), as LibTorch's clip_grad_norm_() and
// clip_grad_value_() do) is there, but not measured anew, unless the gradient was not
// finite before.
//
// Used by one thread, and by the thread that runs backward, not at the same time.
#ifndef LOCKSTEP_WORKER_TORCH_GRADIENT_VIEW_H_
#define LOCKSTEP_WORKER_TORCH_GRADIENT_VIEW_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "ATen/core/Tensor.h"

namespace lockstep {

// Whether `tensor` is the same elements as the contiguous `of`.
bool IsView(const at::Tensor& tensor, const at::Tensor& of);

class GradientView {
 public:
  // `place`: contiguous, of the parameter's shape and type.
  explicit GradientView(at::Tensor place);

  // From now on until Detach() backward moves the gradient of `parameter` to the place
  // of `view`. What was attached for the same moment before goes first.
  static void Attach(const std::shared_ptr<GradientView>& view, const at::Tensor& parameter);
  static void Detach(const GradientView& view, const at::Tensor& parameter);

  // Afterwards the place holds the parameter's gradient, zeros if it has none, and
  // `.grad`, if there is one, is a view of it. May throw what LibTorch throws.
  void Collect(const at::Tensor& parameter);
  // On other devices than the CPU magnitudes are found there: reads those of all `views`,
  // on one device, at once. May throw.
  static void FinishMeasuring(std::span<GradientView* const> views);
  // After these, the largest magnitude in the place; infinity if not all of it is finite.
  float largest() const { return largest_; }

  // From now on until Collect(): calls `in_place` as soon as backward has put a gradient
  // there, once, from backward's thread. From then on the place may be read by others,
  // and overwritten: what was measured then counts.
  void TellWhenInPlace(std::function<void()> in_place);
  // Whether `.grad` is not what was told of any more. What was written through a raw
  // pointer or data() is not noticed.
  bool ChangedSinceTold(const at::Tensor& parameter) const;

  const at::Tensor& place() const { return place_; }

 private:
  class Hook;

  // Moves `.grad` to the place, if it is not there.
  void Take(const at::Tensor& parameter);
  void Measure();
  bool told() const { return told_version_ != kNone; }

  static constexpr std::int64_t kNone = -1;  // is no version
  const at::Tensor place_;
  float largest_ = 0;   // magnitude in the place
  at::Tensor measured_there_;  // what largest_ is to be, on the device; or undefined
  std::int64_t measured_version_ = 0;  // of the place, when that was found; or kNone
  std::function<void()> in_place_;
  std::int64_t told_version_ = kNone;  // of the place, when in_place_ was called
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_GRADIENT_VIEW_H_
