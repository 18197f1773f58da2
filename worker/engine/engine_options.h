// How a rank joins, and how one step is to be taken. Pure values; thread-compatible.
#ifndef LOCKSTEP_WORKER_ENGINE_ENGINE_OPTIONS_H_
#define LOCKSTEP_WORKER_ENGINE_ENGINE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mono_time.h"
#include "worker/device/device_math.h"

namespace lockstep {

// How far a step is, as tests of failures and the reports of stalls tell it.
enum class StepPhase {
  kForward,    // BeforeForward() was called
  kCollected,  // Step() was called, and gradients are in the arenas
  kAgreed,
  kReducing,   // of a step that is prepared, as the next two
  kPreparing,  // this rank's sums are made; buddies get theirs
  kPrepared,
  kCommitted,
  kUpdating,   // some of this rank's copies are updated
  kSpreading,
  kApplying,   // the step is taken; what is due behind it follows
};

// "committed"; nothing: there is no such phase.
absl::string_view StepPhaseName(StepPhase phase);
std::optional<StepPhase> StepPhaseOf(absl::string_view name);

// All equal on all ranks.
struct CheckpointOptions {
  // That all workers see, for the job's checkpoints, with the newest of which it begins; empty:
  // there are none.
  std::string directory;
  std::string job;               // that files say they are of
  std::int64_t every_steps = 0;  // 0: only on command
  int keep = 3;                  // the newest; 0: all

  // Errors: InvalidArgument names the option, its value and what is allowed.
  absl::Status Validate() const;
};

class CheckpointSaver;

struct EngineOptions {
  // This worker's name, as it attends by `link`: its place among the members is
  // its rank.
  std::string worker;
  // From attending to the first step, waiting for other workers included.
  absl::Duration join_timeout = absl::Minutes(5);
  // Of each collective operation; a rank that is later than this is missing.
  absl::Duration operation_timeout = absl::Seconds(60);
  // Of the memory of the transport's arenas; null: HostMath. Of one engine at a time.
  std::shared_ptr<DeviceMath> math = nullptr;
  // Null: no checkpoints. Of one engine at a time.
  std::shared_ptr<CheckpointSaver> saver = nullptr;
  // What the time to join is measured by; null: the real one.
  std::shared_ptr<const Clock> clock = nullptr;
  // Called by the thread that takes the step; must not call the engine.
  std::function<void(StepPhase, std::int64_t step)> on_phase = nullptr;  // committed steps

  // Errors: InvalidArgument names the option.
  absl::Status Validate() const;

  MonoTime Now() const { return clock != nullptr ? clock->Now() : RealClock().Now(); }
};

// How training code formed the loss whose gradient it hands over.
enum class LossReduction {
  kMean,  // over this rank's samples, torch's default
  kSum,   // over this rank's samples
};

struct StepOptions {
  std::int64_t samples = 1;  // in this rank's part of the batch; 0: no data left
  LossReduction loss = LossReduction::kMean;
  // The averaged gradient is scaled down to this norm over all parameters if it is
  // above, as torch's clip_grad_norm_ does; infinity: it is measured only; 0: neither,
  // which saves a pass over the sums. Equal on all ranks.
  double max_grad_norm = 0;
  // What the loss was multiplied by, so that gradients of few bits do not vanish
  // (mixed precision): they are divided by it. 1e-30 to 1e30, equal on all ranks. A
  // step that is refused because gradients are not finite asks for a lower one.
  double loss_scale = 1;

  // Errors: InvalidArgument names the option, its value and what is allowed.
  absl::Status Validate() const;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_ENGINE_OPTIONS_H_
