#include "tests/chaos/chaos_round.h"

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "lockstep/v1/policy.pb.h"
#include "nlohmann/json.hpp"
#include "tests/chaos/serial_training.h"

namespace lockstep {
namespace {

constexpr char kJob[] = "chaos";
constexpr int kWorkers = 4;
constexpr absl::Duration kLease = absl::Seconds(4);
constexpr absl::Duration kPoll = absl::Milliseconds(50);
// For the job to be whole again, on a machine that is busy.
constexpr absl::Duration kPatience = absl::Minutes(2);
// For a worker to end behind the others, or to find that it came too late.
constexpr absl::Duration kTimeToEnd = absl::Seconds(15);

}  // namespace

ChaosRound::ChaosRound(RoundOptions options, Prng* prng, FaultDeck* deck,
                       const std::atomic<bool>* interrupted,
                       std::function<void(const std::string&)> say)
    : options_(std::move(options)),
      prng_(*prng),
      deck_(*deck),
      interrupted_(*interrupted),
      say_(std::move(say)) {}

absl::Status ChaosRound::Run() {
  const std::set<std::string> shared_memory = SharedMemoryFiles();
  LOCKSTEP_ASSIGN_OR_RETURN(cluster_, LocalCluster::Create(options_.folder));
  absl::Status status = Start();
  if (status.ok()) status = AwaitWhole();
  if (status.ok() && options_.disturbed) status = Disturb();
  while (status.ok() && !ended_) status = AwaitWhole();
  if (status.ok()) status = Check();
  cluster_->Stop();
  for (const std::string& file : SharedMemoryFiles()) {
    if (shared_memory.contains(file)) continue;
    ++result_.leaked_segments;
    if (absl::IsCancelled(status)) status = absl::OkStatus();  // this is worse
    status.Update(absl::InternalError(absl::StrCat("/dev/shm/", file, " was left behind")));
  }
  return status;
}

absl::Status ChaosRound::Start() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string data, FindMnist());
  flags_ = {"--transport", options_.transport, "--data", data,
            "--model", "mlp", "--batch", "8",
            "--steps", absl::StrCat(options_.steps), "--epochs", "1000",
            "--drift-every", "0", "--operation-timeout", "30s"};
  LOCKSTEP_RETURN_IF_ERROR(StartCoordinator());
  v1::JobSpec spec;
  spec.set_name(kJob);
  spec.set_min_workers(kWorkers - 1);
  spec.set_max_workers(kWorkers);
  for (int i = 0; i < kWorkers; ++i) spec.add_workers(NameOf(i));
  spec.mutable_lease()->set_seconds(absl::ToInt64Seconds(kLease));
  spec.mutable_join_window()->set_seconds(1);
  spec.set_optimizer_replicas(2);
  LOCKSTEP_RETURN_IF_ERROR(client_->CreateJob(spec).status());
  for (int i = 0; i < kWorkers; ++i) LOCKSTEP_RETURN_IF_ERROR(StartWorker(i));
  return absl::OkStatus();
}

absl::Status ChaosRound::StartCoordinator() {
  LOCKSTEP_RETURN_IF_ERROR(cluster_->StartCoordinator());
  LOCKSTEP_ASSIGN_OR_RETURN(client_, Client::Connect(cluster_->address()));
  return absl::OkStatus();
}

absl::Status ChaosRound::StartWorker(int index) {
  return cluster_->StartWorker(index, kJob, flags_);
}

absl::Status ChaosRound::Disturb() {
  // What is lost then still finds the others at work when it is back.
  const std::int64_t last_step = options_.steps * 4 / 5;
  while (!ended_ && job_.step() < last_step && absl::Now() < options_.last_fault) {
    LOCKSTEP_RETURN_IF_ERROR(Sleep(RandomTime(absl::Seconds(1))));
    const Fault fault = deck_.Next();
    disturbances_.push_back({fault, job_.epoch()});
    LOCKSTEP_RETURN_IF_ERROR(Cause(fault));
    ++result_.faults[fault];
    LOCKSTEP_RETURN_IF_ERROR(AwaitWhole());
  }
  return absl::OkStatus();
}

absl::Status ChaosRound::Cause(Fault fault) {
  const int victim = static_cast<int>(prng_.Below(kWorkers));
  const bool spares_workers = fault == Fault::kKillCoordinator ||
                              fault == Fault::kPauseCoordinator || fault == Fault::kChangePolicy;
  victim_ = spares_workers ? -1 : victim;
  ChildProcess& worker = cluster_->worker(victim);
  ChildProcess& coordinator = cluster_->coordinator();
  const auto say = [&](absl::string_view more) {
    say_(absl::StrCat("epoch ", job_.epoch(), ", step ", job_.step(), ": ", Describe(fault), more));
  };
  const auto pause = [&](ChildProcess& process, absl::Duration time) -> absl::Status {
    say(absl::StrCat(" for ", absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(1))),
                     &process == &worker ? absl::StrCat(": ", NameOf(victim)) : ""));
    process.Signal(SIGSTOP);
    const absl::Status slept = Sleep(time);
    process.Signal(SIGCONT);
    return slept;
  };
  switch (fault) {
    case Fault::kKillWorker:
      say(absl::StrCat(": ", NameOf(victim)));
      worker.Signal(SIGKILL);
      worker.Wait(kPatience);
      LOCKSTEP_RETURN_IF_ERROR(Sleep(RandomTime(absl::Seconds(2))));
      return StartWorker(victim);
    case Fault::kKillCoordinator:
      say("");
      LOCKSTEP_RETURN_IF_ERROR(KillCoordinator());
      return StartCoordinator();
    case Fault::kKillBoth:
      say(absl::StrCat(": ", NameOf(victim)));
      LOCKSTEP_RETURN_IF_ERROR(KillCoordinator());
      worker.Signal(SIGKILL);
      worker.Wait(kPatience);
      LOCKSTEP_RETURN_IF_ERROR(Sleep(RandomTime(absl::Seconds(2))));
      LOCKSTEP_RETURN_IF_ERROR(StartCoordinator());
      return StartWorker(victim);
    case Fault::kPauseWorker:
      return pause(worker, RandomTime(kLease / 2));
    case Fault::kPauseCoordinator:
      return pause(coordinator, RandomTime(kLease / 2));
    case Fault::kStopWorker:
      return pause(worker, kLease + absl::Seconds(1) + RandomTime(absl::Seconds(2)));
    case Fault::kDrainWorker: {
      say(absl::StrCat(": ", NameOf(victim)));
      v1::DrainWorkerRequest request;
      request.set_job(kJob);
      request.set_worker(NameOf(victim));
      const absl::StatusOr<std::int64_t> drained = client_->DrainWorker(request);
      if (!drained.ok()) {  // as it must be where the workers are just finishing
        LOCKSTEP_RETURN_IF_ERROR(AwaitWhole());
        return ended_ ? absl::OkStatus() : drained.status();
      }
      const std::optional<ChildExit> exit = worker.Wait(kPatience);
      if (!exit.has_value() || !exit->ok()) {
        return absl::InternalError(
            absl::StrCat(NameOf(victim), " was drained and ",
                         exit.has_value() ? exit->ToString() : "did not end", ":\n",
                         cluster_->LastWords(NameOf(victim))));
      }
      return StartWorker(victim);
    }
    case Fault::kChangePolicy:
      say("");
      return ChangePolicy();
  }
  return absl::InternalError("an unknown fault");
}

absl::Status ChaosRound::KillCoordinator() {
  cluster_->coordinator().Signal(SIGKILL);
  cluster_->coordinator().Wait(kPatience);
  return Sleep(RandomTime(absl::Seconds(2)));
}

absl::Status ChaosRound::ChangePolicy() {
  v1::UpdateSyncPolicyRequest request;
  request.set_job(kJob);
  v1::SyncPolicy& policy = *request.mutable_policy();
  policy.set_broadcast_buffers(prng_.Below(2) == 0);
  policy.mutable_schedule()->set_every_forwards(static_cast<std::int64_t>(prng_.Below(3)));
  policy.mutable_schedule()->set_every_steps(static_cast<std::int64_t>(prng_.Below(5)));
  policy.mutable_root()->set_rank(static_cast<int>(prng_.Below(kWorkers)));
  return client_->UpdateSyncPolicy(request).status();
}

absl::Status ChaosRound::AwaitWhole() {
  std::int64_t whole_at = -1;  // the step behind which all members trained
  absl::Time alone_since = absl::InfiniteFuture();  // the victim, as all others have ended
  for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int> running, StillRunning());
    if (running.empty()) {
      ended_ = true;
      return absl::OkStatus();
    }
    LOCKSTEP_RETURN_IF_ERROR(Sleep(kPoll));
    if (running == std::vector{victim_}) {
      if (alone_since == absl::InfiniteFuture()) alone_since = absl::Now();
      if (absl::Now() - alone_since > kTimeToEnd) DismissVictim();
      continue;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(job_, client_->GetJob(kJob));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client_->ListWorkers(kJob));
    const bool whole = job_.state() == v1::Job::STATE_RUNNING &&
                       std::ranges::count(workers, v1::Worker::STATE_TRAINING,
                                          &v1::Worker::state) == kWorkers;
    if (!whole) {
      whole_at = -1;
    } else if (whole_at < 0) {
      whole_at = job_.step();
    } else if (job_.step() > whole_at) {
      return absl::OkStatus();
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int> running, StillRunning());
  return absl::InternalError(absl::StrCat(
      "the job did not train with all ", kWorkers, " workers within ",
      absl::FormatDuration(kPatience), "; ",
      absl::StrJoin(running, ", ",
                    [this](std::string* out, int i) { absl::StrAppend(out, NameOf(i)); }),
      " run; ", job_.detail()));
}

void ChaosRound::DismissVictim() {
  say_(absl::StrCat(NameOf(victim_), " came back when the others had finished"));
  cluster_->worker(victim_).Stop(kPatience);
  late_ = victim_;
}

absl::StatusOr<std::vector<int>> ChaosRound::StillRunning() {
  std::vector<int> running;
  for (int i = 0; i < kWorkers; ++i) {
    if (i == late_) continue;
    const std::optional<ChildExit> exit = cluster_->worker(i).Wait(absl::ZeroDuration());
    if (!exit.has_value()) {
      running.push_back(i);
    } else if (!exit->ok()) {
      return absl::InternalError(absl::StrCat(NameOf(i), " ended with ", exit->ToString(), ":\n",
                                              cluster_->LastWords(NameOf(i))));
    }
  }
  if (const auto exit = cluster_->coordinator().Wait(absl::ZeroDuration()); exit.has_value()) {
    return absl::InternalError(absl::StrCat("the coordinator ended with ", exit->ToString(), ":\n",
                                            cluster_->LastWords("coordinator")));
  }
  return running;
}

absl::Status ChaosRound::Check() {
  EpochHistory history;
  std::string digest;
  for (int i = 0; i < kWorkers; ++i) {
    for (const std::string& path : cluster_->FormerReports(i)) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
      LOCKSTEP_RETURN_IF_ERROR(
          history.Add(path, nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false)));
    }
    const absl::StatusOr<std::string> text = ReadFile(cluster_->ReportPath(i));
    if (i == late_ && !text.ok()) continue;  // it saw no epoch
    LOCKSTEP_RETURN_IF_ERROR(text.status());
    const auto report = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    LOCKSTEP_RETURN_IF_ERROR(history.Add(NameOf(i), report));
    if (i == late_) continue;
    const std::string own = report.at("parameter_digest");
    if (digest.empty()) digest = own;
    if (own != digest || report.at("steps") != options_.steps) {
      return absl::InternalError(absl::StrCat(
          NameOf(i), " ended behind step ", report.at("steps").dump(), " with parameters ", own,
          "; others behind step ", options_.steps, " with ", digest));
    }
    result_.steps_per_second = static_cast<double>(options_.steps) /
                               std::max(report.at("seconds").get<double>(), 1e-3);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<SerialTraining> serial,
                            SerialTraining::Create(flags_));
  LOCKSTEP_RETURN_IF_ERROR(history.Replay(options_.steps, digest, *serial));
  result_.epochs = static_cast<int>(history.epochs().size());
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
  for (const auto& [fault, after] : std::views::reverse(disturbances_)) {
    double& longest = result_.longest_stall_seconds[fault];
    longest = std::max(longest, history.longest_stall_seconds(after, last));
    last = after;
  }
  return absl::OkStatus();
}

absl::Status ChaosRound::Sleep(absl::Duration duration) const {
  for (const absl::Time end = absl::Now() + duration; absl::Now() < end;) {
    if (interrupted_) return absl::CancelledError("interrupted");
    absl::SleepFor(std::min(kPoll, end - absl::Now()));
  }
  return absl::OkStatus();
}

absl::Duration ChaosRound::RandomTime(absl::Duration most) { return most * prng_.Unit(); }

}  // namespace lockstep
