#include "tests/bench/coordinator/capacity_run.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "common/base/status_macros.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/policy.pb.h"
#include "security/tls_files.h"
#include "tests/bench/coordinator/fleet.h"
#include "tests/bench/statistics.h"
#include "tools/process/child_process.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

constexpr char kJob[] = "capacity";
constexpr double kMostBeatsPerSecond = 5000;
// Below what the coordinator takes of one worker (coordinator/rpc/attend_stream.h).
constexpr double kMostBeatsOfAWorker = 180;
constexpr absl::Duration kTimeout = absl::Minutes(3);
constexpr absl::Duration kPoll = absl::Milliseconds(20);

absl::StatusOr<TlsFiles> MakeCertificates(const std::string& directory) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string program, FindRunfile("lockstep/tools/dev_ca.sh"));
  for (const auto& arguments :
       {std::vector<std::string>{directory, "server", "127.0.0.1"},
        std::vector<std::string>{directory, "worker", "workers"},
        std::vector<std::string>{directory, "operator", "operator"}}) {
    LOCKSTEP_ASSIGN_OR_RETURN(const RunResult made,
                              RunProgram({.program = program, .arguments = arguments}, kTimeout));
    if (!made.exit.ok()) {
      return absl::InternalError(absl::StrCat(program, " ended with ", made.exit.ToString(), ": ",
                                              made.output));
    }
  }
  return TlsFiles{.authorities = directory + "/ca.pem"};
}

TlsFiles Named(TlsFiles tls, const std::string& directory, const std::string& name) {
  tls.certificate = absl::StrCat(directory, "/", name, ".pem");
  tls.key = absl::StrCat(directory, "/", name, ".key");
  return tls;
}

// One case under way.
class Run {
 public:
  Run(const CapacityCase& the_case, const std::atomic<bool>& interrupted)
      : case_(the_case), interrupted_(interrupted) {
    result_.workers = the_case.workers;
    result_.tls = the_case.tls;
  }

  absl::StatusOr<CapacityResult> All() {
    const std::pair<const char*, absl::Status (Run::*)()> parts[] = {
        {"start", &Run::Begin},   {"epoch", &Run::Join},       {"heartbeats", &Run::Beat},
        {"policy", &Run::Revise}, {"restart", &Run::Restart},
    };
    for (const auto& [name, part] : parts) {
      if (interrupted_) return absl::CancelledError("interrupted");
      std::cerr << absl::StrFormat("%d workers, tls %s: %s\n", case_.workers,
                                   case_.tls ? "on" : "off", name);
      const absl::Status done = (this->*part)();
      if (!done.ok()) {
        return absl::Status(done.code(), absl::StrCat(name, " of ", case_.workers,
                                                      " workers: ", done.message()));
      }
    }
    return result_;
  }

 private:
  absl::Status Begin() {
    TlsFiles server, workers;
    if (case_.tls) {
      LOCKSTEP_ASSIGN_OR_RETURN(const TlsFiles all, MakeCertificates(case_.directory));
      server = Named(all, case_.directory, "server");
      workers = Named(all, case_.directory, "workers");
      operator_ = Named(all, case_.directory, "operator");
    }
    coordinator_ = std::make_unique<CoordinatorProcess>(case_.directory, server, case_.cores);
    LOCKSTEP_RETURN_IF_ERROR(coordinator_->Start());
    LOCKSTEP_RETURN_IF_ERROR(Dial());
    v1::JobSpec spec;
    spec.set_name(kJob);
    spec.set_min_workers(case_.workers);
    LOCKSTEP_RETURN_IF_ERROR(client_->CreateJob(spec).status());
    LOCKSTEP_ASSIGN_OR_RETURN(
        fleet_, Fleet::Create({.address = coordinator_->address(),
                               .tls = workers,
                               .job = kJob,
                               .workers = case_.workers,
                               .workers_per_connection = case_.workers_per_connection}));
    return absl::OkStatus();
  }

  absl::Status Join() {
    result_.idle_bytes = coordinator_->resident_bytes();
    const double cpu_before = coordinator_->cpu_seconds();
    const absl::Time begin = absl::Now();
    fleet_->Attend();
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Time welcomed, fleet_->AwaitWelcome(kTimeout));
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Time started, fleet_->AwaitStart(kTimeout));
    result_.welcomed_seconds = absl::ToDoubleSeconds(welcomed - begin);
    result_.epoch_seconds = absl::ToDoubleSeconds(started - begin);
    result_.epoch_cpu_seconds = coordinator_->cpu_seconds() - cpu_before;
    result_.resident_bytes = coordinator_->resident_bytes();
    return absl::OkStatus();
  }

  absl::Status Beat() {
    const double rate = std::min(kMostBeatsPerSecond, kMostBeatsOfAWorker * case_.workers);
    const double cpu_before = coordinator_->cpu_seconds();
    const absl::Time begin = absl::Now();
    LOCKSTEP_ASSIGN_OR_RETURN(const Fleet::Beats beats,
                              fleet_->Beat(rate, absl::Seconds(case_.seconds), kTimeout));
    result_.heartbeats_cpu_share = (coordinator_->cpu_seconds() - cpu_before) /
                                   absl::ToDoubleSeconds(absl::Now() - begin);
    result_.heartbeats_per_second = beats.per_second;
    result_.heartbeat_p99_ms = Quantile(beats.latencies_ms, 0.99);
    return absl::OkStatus();
  }

  absl::Status Revise() {
    v1::UpdateSyncPolicyRequest request;
    request.set_job(kJob);
    request.mutable_policy()->add_ignore_list("bn.running_var");
    const absl::Time begin = absl::Now();
    LOCKSTEP_ASSIGN_OR_RETURN(const v1::SyncPolicyRevision revision,
                              client_->UpdateSyncPolicy(request, {.timeout = kTimeout}));
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Time received,
                              fleet_->AwaitEntry(revision.log_number(), kTimeout));
    result_.policy_fanout_seconds = absl::ToDoubleSeconds(received - begin);
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client_->GetJob(kJob, {.timeout = kTimeout}));
      const absl::Duration passed = absl::Now() - begin;
      result_.policy_applied_seconds = absl::ToDoubleSeconds(passed);
      if (job.applied_log_number() >= revision.log_number()) break;
      if (passed > kTimeout) {
        return absl::DeadlineExceededError(absl::StrCat(
            "not all have applied revision ", revision.revision(), "; the job says: ",
            job.detail()));
      }
      absl::SleepFor(kPoll);
    }
    result_.peak_bytes = coordinator_->peak_bytes();
    return absl::OkStatus();
  }

  absl::Status Restart() {
    fleet_->ExpectLoss();
    client_.reset();  // a connection that was lost dials again only after a while
    const absl::Time begin = absl::Now();
    coordinator_->Kill();
    LOCKSTEP_RETURN_IF_ERROR(coordinator_->Start());
    LOCKSTEP_RETURN_IF_ERROR(Dial());
    LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client_->GetJob(kJob, {.timeout = kTimeout}));
    result_.restart_seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    if (job.state() != v1::Job::STATE_RUNNING) {
      return absl::InternalError(absl::StrCat("the epoch does not run on: ", job.detail()));
    }
    LOCKSTEP_RETURN_IF_ERROR(fleet_->AwaitLost(kTimeout));
    fleet_->Attend();
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Time started, fleet_->AwaitStart(kTimeout));
    result_.reattended_seconds = absl::ToDoubleSeconds(started - begin);
    return absl::OkStatus();
  }

  absl::Status Dial() {
    LOCKSTEP_ASSIGN_OR_RETURN(client_, Client::Connect(coordinator_->address(), operator_));
    return absl::OkStatus();
  }

  const CapacityCase& case_;
  const std::atomic<bool>& interrupted_;
  CapacityResult result_;
  TlsFiles operator_;
  // The workers end before the coordinator does.
  std::unique_ptr<CoordinatorProcess> coordinator_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Fleet> fleet_;
};

}  // namespace

absl::StatusOr<CapacityResult> RunCapacityCase(const CapacityCase& the_case,
                                               const std::atomic<bool>& interrupted) {
  return Run(the_case, interrupted).All();
}

}  // namespace lockstep
