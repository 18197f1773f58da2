#include "tests/nccl/faulty_training.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/prng.h"
#include "common/base/status_macros.h"
#include "worker/engine/engine.h"
#include "worker/engine/threaded_world.h"
#include "worker/transport/nccl/nccl_transport.h"
#include "worker/transport/nccl/stream_math.h"

namespace lockstep {
namespace {

constexpr int kSteps = 5;
constexpr int kWeights = 600;
constexpr int kBiases = 5;
// So that a shard is several pieces.
constexpr std::int64_t kPieceBytes = 512;
// No fault needs it: what goes wrong is known at once. Far above what a busy machine takes.
constexpr absl::Duration kDeadline = absl::Seconds(20);
// But for a call that does not come back.
constexpr absl::Duration kShortDeadline = absl::Milliseconds(500);
constexpr absl::Duration kAbortTimeout = absl::Milliseconds(500);

SyncPolicy Policy() {
  SyncPolicy policy;
  policy.rules.push_back({.pattern = "bn.mean", .operation = Operation::kMean});
  return policy;
}

void AddTensors(VectorModel& model, int rank) {
  Prng prng(7);
  std::vector<float> weights(kWeights);
  for (float& weight : weights) weight = static_cast<float>(prng.Unit() - 0.5);
  model.AddParameter("fc.weight", std::move(weights));
  model.AddParameter("fc.bias", std::vector<float>(kBiases, 0.25f));
  model.AddBuffer<float>("bn.mean", {1.0f + static_cast<float>(rank), 2, 3});
  model.AddBuffer<std::int64_t>("bn.count", {rank});
}

void Backward(VectorModel& model, int step, int rank) {
  for (const char* name : {"fc.weight", "fc.bias"}) {
    Prng prng(step * 100 + rank);
    for (float& gradient : model.gradient(name)) gradient = static_cast<float>(prng.Unit() - 0.5);
  }
}

struct Outcome {
  std::vector<absl::Status> statuses;      // by rank
  std::vector<std::vector<float>> values;  // by rank
};

// One epoch of all ranks, on the devices of the fake that lives, with arithmetic on their streams.
class Job {
 public:
  // `end_process`: as of NcclOptions, of each rank.
  Job(FakeNccl* fake, int ranks, Epoch epoch, absl::Duration deadline,
      std::function<void()> end_process = [] {})
      : fake_(fake), world_(ranks), end_process_(std::move(end_process)) {
    world_.operation_timeout = deadline;
    for (int rank = 0; rank < ranks; ++rank) AddTensors(world_.model(rank), rank);
    world_.Propose(Policy(), epoch);
  }

  Outcome Run() {
    Outcome outcome;
    outcome.statuses.resize(world_.size());
    outcome.values.resize(world_.size());
    world_.Run([&](int rank) {
      outcome.statuses[rank] = Train(rank);
      if (outcome.statuses[rank].ok()) outcome.values[rank] = ValuesOf(world_.model(rank));
    });
    return outcome;
  }

 private:
  absl::Status Train(int rank) {
    const auto math = std::make_shared<StreamMath>(fake_);
    NcclFactory transports({.api = FakeNccl::Api(),
                            .device = rank,
                            .math = math,
                            .piece_bytes = kPieceBytes,
                            .abort_timeout = kAbortTimeout,
                            .end_process = [&](absl::string_view) { end_process_(); }});
    EngineOptions options = world_.OptionsOf(rank);
    options.math = math;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                              Engine::Join(options, Adam{.lr = 0.1}, &world_.model(rank),
                                           &transports, &world_.link(rank)));
    const absl::Status trained = TakeSteps(rank, *engine);
    engine->Leave(trained);
    return trained;
  }

  absl::Status TakeSteps(int rank, Engine& engine) {
    for (int step = 0; step < kSteps; ++step) {
      const StepOptions options = {.samples = 1 + rank, .max_grad_norm = step == 2 ? 0.5 : 0.0};
      LOCKSTEP_RETURN_IF_ERROR(engine.BeforeForward());
      // In one step of two: gradients travel before Step(), and in it.
      if (step % 2 == 0) LOCKSTEP_RETURN_IF_ERROR(engine.BeforeBackward(options));
      Backward(world_.model(rank), step, rank);
      LOCKSTEP_RETURN_IF_ERROR(engine.Step(options));
    }
    LOCKSTEP_RETURN_IF_ERROR(engine.BroadcastBuffers(world_.size() - 1));
    // No rank is through before all are: a step without samples is a meeting in which nothing
    // moves, refused on all ranks.
    const absl::Status met = engine.Step({.samples = 0});
    return absl::IsInvalidArgument(met) ? absl::OkStatus() : met;
  }

  static std::vector<float> ValuesOf(VectorModel& model) {
    std::vector<float> values;
    for (const char* name : {"fc.weight", "fc.bias"}) {
      std::ranges::copy(model.parameter(name), std::back_inserter(values));
    }
    std::ranges::copy(model.buffer<float>("bn.mean"), std::back_inserter(values));
    for (const std::int64_t count : model.buffer<std::int64_t>("bn.count")) {
      values.push_back(static_cast<float>(count));
    }
    return values;
  }

  FakeNccl* const fake_;
  ThreadedWorld world_;
  const std::function<void()> end_process_;
};

std::string TextOf(const std::vector<absl::Status>& statuses) {
  std::vector<std::string> texts;
  for (const absl::Status& status : statuses) texts.push_back(status.ToString());
  return absl::StrJoin(texts, "; ");
}

// Of transport.h, and what a device or NCCL that is broken makes.
bool IsDocumented(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kInternal:
    // Of a call that did not come back; or an epoch that did not start was waited for again, and
    // these tests propose one only.
    case absl::StatusCode::kDeadlineExceeded:
      return !status.message().empty();
    default:
      return false;
  }
}

// What is no result of a call that failed: success, or to be asked again.
std::vector<int> ResultsOf(const std::string& function) {
  if (FakeNccl::IsOfNccl(function)) {
    // The last is of a later NCCL.
    return {ncclUnhandledCudaError, ncclSystemError,  ncclInternalError, ncclInvalidArgument,
            ncclInvalidUsage,       ncclRemoteError, ncclTimeout,        ncclNumResults + 1};
  }
  return {cudaErrorInvalidValue,  cudaErrorMemoryAllocation, cudaErrorInitializationError,
          cudaErrorNoDevice,      cudaErrorIllegalAddress,   cudaErrorLaunchFailure,
          cudaErrorECCUncorrectable, cudaErrorUnknown};
}

// That `outcome` is of a run that went well.
absl::Status CheckHealthy(const Outcome& outcome, const std::vector<float>* expected) {
  for (std::size_t rank = 0; rank < outcome.statuses.size(); ++rank) {
    if (!outcome.statuses[rank].ok()) {
      return absl::InternalError(absl::StrCat("ranks ended with ", TextOf(outcome.statuses)));
    }
    if (outcome.values[rank] != (expected != nullptr ? *expected : outcome.values[0])) {
      return absl::InternalError(absl::StrCat("rank ", rank, " has wrong values"));
    }
  }
  return absl::OkStatus();
}

// Of a fake whose transports are gone.
absl::Status CheckClean(FakeNccl& fake, bool may_leak) {
  const std::vector<std::string> broken = fake.TakeViolations();
  if (!broken.empty()) {
    return absl::InternalError(absl::StrCat("rules were broken: ", absl::StrJoin(broken, "; ")));
  }
  const std::vector<std::string> left = fake.Leaks();
  if (!may_leak && !left.empty()) {
    return absl::InternalError(absl::StrCat("left behind: ", absl::StrJoin(left, "; ")));
  }
  return absl::OkStatus();
}

// A thing that could not be freed or ended is still there.
bool IsAboutFreeing(const std::string& function) {
  return function == "MemFree" || function == "Free" || function == "FreeHost" ||
         function == "EventDestroy" || function == "StreamDestroy" || function == "CommAbort";
}

// That a new epoch on the devices of the fake that lives makes the right values.
absl::Status CheckNewEpoch(FakeNccl& fake, int ranks, const HealthyRun& healthy,
                           const Outcome& before) {
  const Outcome anew = Job(&fake, ranks, Epoch(2), kDeadline).Run();
  const absl::Status status = CheckHealthy(anew, &healthy.values);
  if (status.ok()) return status;
  return absl::InternalError(absl::StrCat("after ", TextOf(before.statuses), ", a new epoch: ",
                                          status.message()));
}

absl::StatusOr<Ending> TryTrainWith(const FakeNccl::Injection& fault, int ranks,
                                    const HealthyRun& healthy) {
  const bool holds = fault.fault == FakeNccl::Fault::kHold;
  auto fake = std::make_unique<FakeNccl>(FakeNccl::Options{.devices = ranks});
  fake->Inject(fault);
  // The thread of a process that has ended goes on here, so the call that it is in must.
  std::atomic<bool> has_ended = false;
  const auto end_process = [&] {
    has_ended = true;
    fake->Release();
  };
  const absl::Time start = absl::Now();
  const Outcome outcome =
      Job(fake.get(), ranks, Epoch(1), holds ? kShortDeadline : kDeadline, end_process).Run();
  if (absl::Now() - start >= kDeadline) {
    return absl::InternalError(absl::StrCat("it took ", absl::FormatDuration(absl::Now() - start),
                                            ": ", TextOf(outcome.statuses)));
  }
  const bool all_ok = std::ranges::all_of(outcome.statuses, &absl::Status::ok);
  if (all_ok) {
    LOCKSTEP_RETURN_IF_ERROR(CheckHealthy(outcome, &healthy.values));
  } else if (!std::ranges::all_of(outcome.statuses, IsDocumented)) {
    return absl::InternalError(absl::StrCat("ranks ended with ", TextOf(outcome.statuses)));
  }
  const bool reached = fake->CallsOf(fault.function, fault.device) > fault.call;
  if (reached && holds && !has_ended) {
    return absl::InternalError("a call that never returned was not noticed");
  }
  if (has_ended) {
    // It is started anew, and with it its device.
    fake = nullptr;
    fake = std::make_unique<FakeNccl>(FakeNccl::Options{.devices = ranks});
  }
  if (!all_ok) LOCKSTEP_RETURN_IF_ERROR(CheckNewEpoch(*fake, ranks, healthy, outcome));
  LOCKSTEP_RETURN_IF_ERROR(CheckClean(*fake, IsAboutFreeing(fault.function)));
  if (!reached) return Ending::kNotReached;
  if (has_ended) return Ending::kProcessEnded;
  return all_ok ? Ending::kUnharmed : Ending::kRefused;
}

}  // namespace

absl::StatusOr<HealthyRun> TrainUndisturbed(int ranks) {
  FakeNccl fake({.devices = ranks});
  const Outcome outcome = Job(&fake, ranks, Epoch(1), kDeadline).Run();
  LOCKSTEP_RETURN_IF_ERROR(CheckHealthy(outcome, nullptr));
  HealthyRun healthy = {.values = outcome.values[0]};
  for (const std::string& function : FakeNccl::EntryPoints()) {
    std::vector<int> calls;
    for (int device = 0; device < ranks; ++device) calls.push_back(fake.CallsOf(function, device));
    if (std::ranges::any_of(calls, [](int count) { return count > 0; })) {
      healthy.calls[function] = std::move(calls);
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckClean(fake, /*may_leak=*/false));
  return healthy;
}

std::vector<FakeNccl::Injection> FaultsOf(const HealthyRun& healthy) {
  std::vector<FakeNccl::Injection> faults;
  for (const auto& [function, calls] : healthy.calls) {
    for (int device = 0; device < static_cast<int>(calls.size()); ++device) {
      for (int call = 0; call < calls[device]; ++call) {
        faults.push_back({.function = function,
                          .call = call,
                          .device = device,
                          .fault = FakeNccl::Fault::kHold});
        for (const int result : ResultsOf(function)) {
          faults.push_back({.function = function,
                            .call = call,
                            .device = device,
                            .fault = FakeNccl::Fault::kResult,
                            .result = result});
          if (function != "CommGetAsyncError") continue;
          faults.push_back(faults.back());
          faults.back().fault = FakeNccl::Fault::kAsyncError;
        }
      }
    }
  }
  return faults;
}

absl::StatusOr<Ending> TrainWith(const FakeNccl::Injection& fault, int ranks,
                                 const HealthyRun& healthy) {
  const absl::StatusOr<Ending> ending = TryTrainWith(fault, ranks, healthy);
  if (ending.ok()) return ending;
  return absl::InternalError(absl::StrCat(Describe(fault), ": ", ending.status().message()));
}

std::string Describe(const FakeNccl::Injection& fault) {
  const std::string call =
      absl::StrCat(fault.function, "'s call ", fault.call, " on device ", fault.device.value_or(-1));
  switch (fault.fault) {
    case FakeNccl::Fault::kHold:
      return absl::StrCat(call, " never returns");
    case FakeNccl::Fault::kAsyncError:
      return absl::StrCat(call, " and those behind report ", fault.result);
    default:
      return absl::StrCat(call, " returns ", fault.result);
  }
}

}  // namespace lockstep
