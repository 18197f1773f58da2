#include "tests/sim/cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/text.h"
#include "common/sharding/replicas.h"
#include "tests/sim/without.h"
#include "worker/engine/forwarding_transport.h"

namespace lockstep::sim {
namespace {

// A worker that waits this long for an epoch gives up, and is started again.
constexpr absl::Duration kJoinTimeout = absl::Seconds(60);
constexpr absl::Duration kOperationTimeout = absl::Seconds(3);

}  // namespace

std::string ClusterOptions::ToString() const {
  return absl::StrCat(workers, " workers, at least ", job.min_workers, "; optimizer_replicas ",
                      job.optimizer_replicas, "; ", Describe(training.optimizer),
                      training.max_grad_norm == 0 ? "" : ", clipped",
                      fabric.shares_parameters ? "; shared parameters" : "",
                      fabric.tells_peers ? "" : "; aborts reach peers by the coordinator alone");
}

Cluster::Cluster(Scheduler* scheduler, Trace* trace, const ClusterOptions& options)
    : scheduler_(*scheduler),
      trace_(*trace),
      options_(options),
      net_(scheduler),
      fabric_(scheduler, options.fabric),
      checker_(trace, options.training, options.job.optimizer_replicas,
               [this](const Life& life) { return IsOut(life); }),
      coordinator_(scheduler, trace, &net_,
                   {.on_state = [this](const ClusterState& state) { checker_.OnState(state); },
                    .on_message = options.without == Without::kFencing
                                      ? [](const ClusterState& state, WorkerMessage& message) {
                                          TakeForCurrent(state, message);
                                        }
                                      : std::function<void(const ClusterState&, WorkerMessage&)>()}),
      slots_(options.workers) {}

Cluster::~Cluster() {
  for (Slot& slot : slots_) {
    if (slot.process != nullptr) scheduler_.Kill(slot.process);
  }
}

int Cluster::Drift() {
  return static_cast<int>(scheduler_.prng().Between(-options_.most_drift_permille,
                                                    options_.most_drift_permille));
}

void Cluster::StartCoordinator() {
  if (!coordinator_.is_up()) coordinator_.Start(Drift());
}

void Cluster::CreateJob() {
  if (job_created_) return;
  if (coordinator_.is_up()) {
    coordinator_.Submit(lockstep::CreateJob{options_.job}, [this](const absl::StatusOr<Reply>& reply) {
      job_created_ = reply.ok() || absl::IsAlreadyExists(reply.status());
    });
  }
  scheduler_.After(absl::Seconds(1), nullptr, [this] { CreateJob(); });
}

void Cluster::StartWorker(int worker) {
  Slot& slot = slots_[worker];
  if (slot.process != nullptr) return;
  ++slot.starts;
  last_incarnation_ = last_incarnation_.next();
  slot.incarnation = last_incarnation_;
  slot.process = scheduler_.NewProcess(NameOf(worker), Drift());
  slot.process->set_latency(slot.latency);
  slot.planned.reset();
  slot.dismissed.reset();
  slot.step = 0;
  trace_.Say(NameOf(worker), " starts as incarnation ", slot.incarnation.value());
  Manifest manifest = *options_.training.NewModel()->Describe();
  manifest.optimizer = Describe(options_.training.optimizer);
  links_.push_back(std::make_unique<SimLink>(&scheduler_, slot.process, &net_,
                                             Hello{.job = options_.job.name,
                                                   .worker = NameOf(worker),
                                                   .incarnation = slot.incarnation,
                                                   .manifest = std::move(manifest),
                                                   .transport = "simulated"}));
  slot.link = links_.back().get();
  slot.link->OnProposal([this, &slot, life = LifeOf(worker)](const Proposal& proposal) {
    const auto me = std::ranges::find(proposal.members, life.worker) - proposal.members.begin();
    slot.copies = CopiesOf(proposal.plan, proposal.optimizer_replicas)[me];
    checker_.OnProposal(life, proposal);
  });
  scheduler_.Start(slot.process, [this, worker, process = slot.process, link = slot.link] {
    Train(worker, process, link);
  });
}

void Cluster::Down(int worker, std::optional<absl::Duration> after) {
  Slot& slot = slots_[worker];
  scheduler_.Kill(slot.process);
  slot.link->Drop();
  fabric_.Died(NameOf(worker));
  slot.process = nullptr;
  const std::int64_t starts = ++slot.starts;
  if (!after.has_value()) return;
  scheduler_.After(*after, nullptr, [this, worker, starts] {
    if (slots_[worker].starts == starts) StartWorker(worker);
  });
}

void Cluster::CrashWorker(int worker, std::optional<absl::Duration> after) {
  if (!is_up(worker)) return;
  trace_.Say(NameOf(worker), " crashes");
  Down(worker, after);
}

void Cluster::StopWorker(int worker) {
  if (!is_up(worker)) return;
  trace_.Say(NameOf(worker), " is stopped");
  scheduler_.Stop(slots_[worker].process);
}

void Cluster::ContinueWorker(int worker) {
  if (!is_stopped(worker)) return;
  trace_.Say(NameOf(worker), " is continued");
  KeepAway(worker, absl::ZeroDuration());
  scheduler_.Continue(slots_[worker].process);
}

void Cluster::DismissWorker(int worker, absl::Duration after) {
  if (is_up(worker)) slots_[worker].dismissed = after;
}

void Cluster::SlowDown(int worker, absl::Duration latency) {
  slots_[worker].latency = latency;
  if (is_up(worker)) slots_[worker].process->set_latency(latency);
}

void Cluster::Plan(int worker, StepPhase phase, Fate fate,
                   std::optional<absl::Duration> duration) {
  if (is_up(worker)) slots_[worker].planned = {phase, fate, duration};
}

void Cluster::BreakStream(int worker) {
  if (!is_up(worker)) return;
  trace_.Say("the stream of ", NameOf(worker), " breaks");
  net_.BreakAll(slots_[worker].process);
}

void Cluster::BlockControl(int worker, ControlNet::Direction direction,
                           absl::Duration duration) {
  trace_.Say("nothing passes ", direction == ControlNet::kUp ? "from " : "to ", NameOf(worker),
             direction == ControlNet::kUp ? " to" : " from", " the coordinator for ",
             absl::FormatDuration(duration));
  KeepAway(worker, duration);
  net_.Block(NameOf(worker), direction, scheduler_.now() + duration);
}

void Cluster::BlockData(int from, int to, absl::Duration duration) {
  trace_.Say("nothing passes from ", NameOf(from), " to ", NameOf(to), " for ",
             absl::FormatDuration(duration));
  fabric_.Block(NameOf(from), NameOf(to), scheduler_.now() + duration);
}

std::optional<std::int64_t> Cluster::StepOf(int worker) const {
  if (!is_up(worker)) return std::nullopt;
  return slots_[worker].step;
}

void Cluster::Drain(int worker) {
  if (!coordinator_.is_up()) return;
  trace_.Say("client: drains ", NameOf(worker));
  coordinator_.Submit(
      DrainWorker{.job = options_.job.name, .worker = NameOf(worker), .allow_waiting = true},
      [](const absl::StatusOr<Reply>&) {});
}

void Cluster::RevisePolicy(const SyncPolicy& policy) {
  if (!coordinator_.is_up()) return;
  coordinator_.Submit(
      UpdateSyncPolicy{.job = options_.job.name, .policy = policy},
      [this](const absl::StatusOr<Reply>& reply) {
        if (!reply.ok()) {
          trace_.Say("client: a revision is refused: ", reply.status().message());
          return;
        }
        const auto& made = std::get<PolicyHistoryEntry>(*reply);
        trace_.Say("client: revision ", made.revision.value(), " is made as entry ",
                   made.number.value());
        checker_.OnRevision(made.revision, made.policy);
        checker_.OnEntry(made.number);
      });
}

void Cluster::Heal() {
  net_.Heal();
  fabric_.Heal();
  StartCoordinator();
  coordinator_.Continue();
  for (int worker = 0; worker < workers(); ++worker) {
    slots_[worker].planned.reset();
    slots_[worker].dismissed.reset();
    SlowDown(worker, absl::Microseconds(200));
    ContinueWorker(worker);
    StartWorker(worker);
  }
}

bool Cluster::Holds(const Life& life) const {
  return std::ranges::any_of(slots_, [&](const Slot& slot) {
    return slot.process != nullptr && !slot.process->stopped() &&
           slot.process->name() == life.worker && slot.incarnation == life.incarnation &&
           !slot.planned.has_value() && !slot.dismissed.has_value();
  });
}

bool Cluster::IsOut(const Life& life) const {
  return std::ranges::none_of(slots_, [&](const Slot& slot) {
    return slot.process != nullptr && slot.process->name() == life.worker &&
           slot.incarnation == life.incarnation && !slot.process->stopped() &&
           slot.away_until <= scheduler_.now();
  });
}

// An epoch that was proposed meanwhile takes its time to come to nothing.
void Cluster::KeepAway(int worker, absl::Duration duration) {
  slots_[worker].away_until =
      std::max(slots_[worker].away_until, scheduler_.now() + duration + 2 * options_.job.lease);
}

bool Cluster::IsWhole() const {
  const std::vector<Life> lives = checker_.Holders();
  return !lives.empty() && checker_.newest_is_whole() &&
         std::ranges::all_of(lives, [this](const Life& life) { return Holds(life); });
}

bool Cluster::OthersHold(int worker) const {
  const std::vector<Life> lives = checker_.Holders();
  return !lives.empty() && std::ranges::all_of(lives, [&](const Life& life) {
    return life.worker == NameOf(worker) || Holds(life);
  });
}

void Cluster::OnPhase(int worker, Process* process, StepPhase phase, std::int64_t step) {
  if (tells_.steps) trace_.Say(NameOf(worker), " ", Sentence(phase, step + 1));
  std::optional<PlannedFate>& planned = slots_[worker].planned;
  if (planned.has_value() && planned->phase == phase) {
    const PlannedFate fate = *std::exchange(planned, std::nullopt);
    trace_.Say(NameOf(worker), " reaches ", StepPhaseName(phase), ", as planned");
    scheduler_.After(absl::ZeroDuration(), process, [this, worker, process, fate] {
      if (fate.fate == Fate::kCrash) return CrashWorker(worker, fate.duration);
      StopWorker(worker);
      if (!fate.duration.has_value()) return;
      scheduler_.After(*fate.duration, nullptr, [this, worker, process] {
        if (slots_[worker].process == process) ContinueWorker(worker);
      });
    });
    scheduler_.Sleep(process, absl::Microseconds(1));
  } else if (scheduler_.OneIn(10)) {
    scheduler_.Sleep(process, scheduler_.Random(absl::ZeroDuration(), absl::Milliseconds(2)));
  }
}

Checker::Place Cluster::PlaceOf(VectorModel& model, const Engine& engine) const {
  return {.epoch = engine.epoch(),
          .step = engine.step(),
          .samples = engine.samples(),
          .parameters = ParametersOf(model)};
}

void Cluster::Joined(int worker, VectorModel& model, const Engine& engine) {
  trace_.Say(NameOf(worker), " joins epoch ", engine.epoch().value(), " behind step ",
             engine.step(), " as rank ", engine.rank(), " of ", engine.world_size());
  if (engine.epoch() > last_begun_) {
    last_begun_ = engine.epoch();
    trace_.Say("epoch ", engine.epoch().value(), " ", engine.beginning());
  }
  slots_[worker].step = engine.step();
  if (tells_.state) {
    std::vector<std::string> copies;
    for (const Shard& copy : slots_[worker].copies) {
      copies.push_back(absl::StrCat(copies.empty() ? "" : "a copy of ", "[", copy.begin, ", ",
                                    copy.end, ")"));
    }
    trace_.Say(NameOf(worker), " keeps the optimizer state of elements ", ListNames(copies));
  }
  checker_.OnJoined(LifeOf(worker), PlaceOf(model, engine));
}

// The thread ends; the process is gone a moment later, as events of it may be under way.
void Cluster::End(int worker, const absl::Status& why, absl::Duration away) {
  trace_.Say(NameOf(worker), " ends: ", why.ToString());
  if (absl::IsDataLoss(why)) checker_.OnDataLoss(LifeOf(worker));
  scheduler_.After(absl::ZeroDuration(), nullptr,
                   [this, worker, away, starts = slots_[worker].starts] {
                     if (slots_[worker].starts == starts) Down(worker, away);
                   });
}

absl::Status Cluster::TakeStep(int worker, Process* process, VectorModel& model, Engine& engine) {
  const Training& training = options_.training;
  scheduler_.Sleep(process, scheduler_.Random(absl::ZeroDuration(), 2 * options_.compute));
  if (const absl::Status ready = engine.BeforeForward(); !ready.ok()) return ready;
  const std::int64_t base = engine.samples();
  const int rank = engine.rank();
  const int size = engine.world_size();
  std::vector<float> mean = model.buffer<float>("bn.running_mean");
  for (float& each : mean) each = 0.9f * each + 0.1f * static_cast<float>(base + rank);
  model.SetBuffer("bn.running_mean", mean);
  model.SetBuffer("bn.num_batches_tracked",
                  std::vector<std::int64_t>{
                      model.buffer<std::int64_t>("bn.num_batches_tracked")[0] + 1});
  model.SetBuffer("local.queue", std::vector<float>{static_cast<float>(worker), mean[0]});
  for (std::size_t i = 0; i < ParameterNames().size(); ++i) {
    const std::string& name = ParameterNames()[i];
    std::ranges::copy(
        training.GradientOf(base, rank, size, static_cast<int>(i), model.parameter(name)),
        model.gradient(name).begin());
  }
  checker_.OnAttempt(LifeOf(worker), {.epoch = engine.epoch(),
                                      .step = engine.step() + 1,
                                      .world_size = size,
                                      .revision = engine.revision()});
  const std::size_t applied = engine.applied().size();
  const Revision revision = engine.revision();
  const absl::Status taken = engine.Step({.samples = training.SamplesOf(base, rank, size),
                                          .max_grad_norm = training.max_grad_norm});
  for (std::size_t i = applied; i < engine.applied().size(); ++i) {
    const AppliedEntry& entry = engine.applied()[i];
    trace_.Say(NameOf(worker), " applied entry ", entry.number.value(), " behind step ",
               entry.step);
    checker_.OnApplied(LifeOf(worker), engine.epoch(), entry.number, entry.step);
  }
  if (!taken.ok()) return taken;
  trace_.Say(NameOf(worker), " step ", engine.step(), " committed under revision ",
             revision.value());
  slots_[worker].step = engine.step();
  checker_.OnCommitted(LifeOf(worker), PlaceOf(model, engine));
  return absl::OkStatus();
}

void Cluster::Train(int worker, Process* process, SimLink* link) {
  const absl::Duration away = scheduler_.Random(absl::Milliseconds(10), absl::Seconds(1));
  const absl::Status welcome = link->AwaitWelcome(kJoinTimeout);
  if (!welcome.ok()) return End(worker, welcome, away);
  const EngineOptions options = {
      .worker = NameOf(worker),
      .join_timeout = kJoinTimeout,
      .operation_timeout = kOperationTimeout,
      .clock = std::make_shared<ProcessClock>(process),
      .on_phase = [this, worker, process](StepPhase phase, std::int64_t step) {
        OnPhase(worker, process, phase, step);
      }};
  const OptimizerConfig& optimizer = options_.training.optimizer;
  SimTransportFactory transports(&fabric_, process);
  WrappingFactory wrapped(&transports, [this](std::unique_ptr<Transport> transport) {
    return TellPassages(&tells_, &trace_, Weaken(options_.without, std::move(transport)));
  });
  const std::unique_ptr<VectorModel> model = options_.training.NewModel();
  absl::StatusOr<std::unique_ptr<Engine>> joined =
      Engine::Join(options, optimizer, model.get(), &wrapped, link);
  if (!joined.ok()) return End(worker, joined.status(), away);
  std::unique_ptr<Engine> engine = *std::move(joined);
  Joined(worker, *model, *engine);
  while (true) {
    if (slots_[worker].dismissed.has_value()) {
      engine->Leave(absl::OkStatus());
      return End(worker, absl::CancelledError("it was dismissed"), *slots_[worker].dismissed);
    }
    const absl::Status taken = TakeStep(worker, process, *model, *engine);
    if (taken.ok() && !engine->epoch_is_over()) continue;
    trace_.Say(NameOf(worker), taken.ok() ? " regroups" : absl::StrCat(" fails: ", taken.message()));
    if (!taken.ok() && !engine->CanRejoin()) {
      engine->Leave(taken);
      return End(worker, taken, away);
    }
    absl::StatusOr<std::unique_ptr<Engine>> next =
        Engine::Rejoin(*engine, options, optimizer, &wrapped);
    if (!next.ok()) return End(worker, next.status(), away);
    engine = *std::move(next);
    Joined(worker, *model, *engine);
  }
}

}  // namespace lockstep::sim
