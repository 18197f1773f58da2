#include "worker/optim/shard_optimizer.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/memory/host_memory.h"
#include "worker/optim/adagrad.h"
#include "worker/optim/adam.h"
#include "worker/optim/adamw.h"
#include "worker/optim/grouped_settings.h"
#include "worker/optim/sgd.h"
#include "worker/optim/update_loop.h"

namespace lockstep {
namespace {

template <typename Config, typename Rule>
class ShardOptimizerOf final : public ShardOptimizer {
 public:
  static absl::StatusOr<std::unique_ptr<ShardOptimizer>> Make(const Config& config,
                                                              std::vector<GroupRange> ranges,
                                                              std::int64_t short_begin) {
    std::unique_ptr<ShardOptimizerOf> made(
        new ShardOptimizerOf(config, std::move(ranges), short_begin));
    made->kept_ = ElementStatesOf(config);
    LOCKSTEP_CHECK(made->kept_.size() == Rule::kStates);
    for (const ElementState& each : made->kept_) {
      LOCKSTEP_ASSIGN_OR_RETURN(HostMemory state, FloatsFor(made->elements()));
      if (each.initial != 0) std::fill_n(Floats(state), made->elements(), each.initial);
      made->states_.push_back(std::move(state));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(HostMemory masters,
                              FloatsFor(made->elements() - made->short_begin_));
    made->states_.push_back(std::move(masters));
    return made;
  }

  void BeginStep(float grad_scale) override {
    ++step_;
    grad_scale_ = grad_scale;
    rules_.clear();
    for (const Config& settings : grouped_.settings()) rules_.emplace_back(settings, step_);
  }

  void Update(std::int64_t begin, std::span<const float> gradients, DType dtype,
              std::byte* params) override {
    grouped_.ForEachPart(
        begin, begin + static_cast<std::int64_t>(gradients.size()),
        [&](std::size_t settings, std::int64_t at, std::int64_t stop) {
          UpdatePart(rules_[settings], at, stop - at, gradients.data() + (at - begin), dtype,
                     params + (at - begin) * ElementBytes(dtype));
        });
  }

  absl::Status SetLearningRate(double lr) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckLearningRate(lr));
    grouped_.SetLearningRate(lr);
    return absl::OkStatus();
  }

  std::vector<StateSlot> state() override {
    std::vector<StateSlot> slots;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      slots.push_back({kept_[i].name, 0, SpanOf(states_[i], elements())});
    }
    if (short_begin_ < elements()) {
      slots.push_back({std::string(kMasters), short_begin_,
                       SpanOf(states_.back(), elements() - short_begin_)});
    }
    return slots;
  }
  std::int64_t step() const override { return step_; }
  void set_step(std::int64_t step) override { step_ = step; }

  double learning_rate() const override { return grouped_.learning_rate(); }
  std::int64_t elements() const override { return grouped_.elements(); }
  std::int64_t state_bytes() const override {
    std::int64_t bytes = 0;
    for (const HostMemory& state : states_) bytes += state.bytes();
    return bytes;
  }

 private:
  ShardOptimizerOf(const Config& config, std::vector<GroupRange> ranges, std::int64_t short_begin)
      : grouped_(config, std::move(ranges)), short_begin_(std::min(short_begin, elements())) {}

  static absl::StatusOr<HostMemory> FloatsFor(std::int64_t elements) {
    return HostMemory::Allocate(elements * static_cast<std::int64_t>(sizeof(float)));
  }
  static std::span<float> SpanOf(const HostMemory& memory, std::int64_t elements) {
    return {Floats(memory), static_cast<std::size_t>(elements)};
  }
  static float* Floats(const HostMemory& memory) { return reinterpret_cast<float*>(memory.data()); }

  // Of element `begin` >= short_begin_.
  float* MastersFrom(std::int64_t begin) const {
    return Floats(states_.back()) + (begin - short_begin_);
  }

  void UpdatePart(const Rule& rule, std::int64_t begin, std::int64_t n, const float* gradients,
                  DType dtype, std::byte* params) {
    StatePointers<Rule::kStates> states;
    for (std::size_t i = 0; i < states.size(); ++i) states[i] = Floats(states_[i]) + begin;
    switch (dtype) {
      case DType::kBfloat16:
        return UpdateRange(rule, gradients, grad_scale_, states, MastersFrom(begin),
                           reinterpret_cast<c10::BFloat16*>(params), n);
      case DType::kFloat16:
        return UpdateRange(rule, gradients, grad_scale_, states, MastersFrom(begin),
                           reinterpret_cast<c10::Half*>(params), n);
      default:
        return UpdateRange(rule, gradients, grad_scale_, states, reinterpret_cast<float*>(params),
                           n);
    }
  }

  GroupedSettings<Config> grouped_;
  const std::int64_t short_begin_;
  std::int64_t step_ = 0;
  float grad_scale_ = 1;
  std::vector<Rule> rules_;  // of the step, as grouped_.settings()
  std::vector<ElementState> kept_;
  std::vector<HostMemory> states_;  // of all elements each, as kept_, then the masters
};

using Made = absl::StatusOr<std::unique_ptr<ShardOptimizer>>;

Made Make(const Sgd& config, std::vector<GroupRange> ranges, std::int64_t short_begin) {
  if (config.momentum == 0) {
    return ShardOptimizerOf<Sgd, SgdRule>::Make(config, std::move(ranges), short_begin);
  }
  return ShardOptimizerOf<Sgd, MomentumRule>::Make(config, std::move(ranges), short_begin);
}
Made Make(const Adam& config, std::vector<GroupRange> ranges, std::int64_t short_begin) {
  return ShardOptimizerOf<Adam, AdamRule>::Make(config, std::move(ranges), short_begin);
}
Made Make(const AdamW& config, std::vector<GroupRange> ranges, std::int64_t short_begin) {
  return ShardOptimizerOf<AdamW, AdamWRule>::Make(config, std::move(ranges), short_begin);
}
Made Make(const Adagrad& config, std::vector<GroupRange> ranges, std::int64_t short_begin) {
  return ShardOptimizerOf<Adagrad, AdagradRule>::Make(config, std::move(ranges), short_begin);
}

}  // namespace

absl::Status CheckRanges(const std::vector<GroupRange>& ranges, std::size_t groups) {
  std::int64_t end = 0;
  for (const GroupRange& range : ranges) {
    if (range.begin != end || range.end < range.begin || range.group < kNoGroup ||
        range.group >= static_cast<std::int64_t>(groups)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a range of group ", range.group, " from element ", range.begin, " to ", range.end,
          "; expected is one that starts at ", end, ", of a group below ", groups));
    }
    end = range.end;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ShardOptimizer>> ShardOptimizer::Create(
    const OptimizerConfig& config, std::vector<GroupRange> ranges, std::int64_t short_begin) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(config));
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges(ranges, GroupsOf(config).size()));
  return std::visit([&](const auto& c) { return Make(c, std::move(ranges), short_begin); }, config);
}

absl::StatusOr<std::unique_ptr<ShardOptimizer>> ShardOptimizer::Create(
    const OptimizerConfig& config, std::int64_t elements) {
  return Create(config, std::vector<GroupRange>{{0, elements, kNoGroup}}, elements);
}

absl::Status ShardOptimizer::Step(std::span<const float> gradients, float grad_scale,
                                  std::span<float> params) {
  const auto expected = static_cast<std::size_t>(elements());
  if (gradients.size() != expected || params.size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("the step got ", gradients.size(), " gradient and ", params.size(),
                     " parameter elements; this shard has ", elements()));
  }
  BeginStep(grad_scale);
  Update(0, gradients, DType::kFloat32, reinterpret_cast<std::byte*>(params.data()));
  return EndStep();
}

}  // namespace lockstep
