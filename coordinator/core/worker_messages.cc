// CoordinatorFsm: what workers say.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/core/membership.h"

namespace lockstep {
void CoordinatorFsm::Greet(MonoTime now, StreamId stream, const Hello& hello, Effects& out) {
  // A stream greets once; the worker of a second Hello is heard no more.
  if (streams_.contains(stream)) {
    On(now, StreamBroke{stream}, out);
    out.end.push_back({stream, absl::InvalidArgumentError("the stream had a Hello before")});
    return;
  }
  absl::StatusOr<JobState*> found = FindJob(hello.job);
  if (!found.ok()) {
    out.end.push_back({stream, found.status()});
    return;
  }
  JobState& job = **found;
  const HelloDecision decision = DecideHello(job, hello);
  const auto known = job.workers.find(hello.worker);
  if (known != job.workers.end() && known->second.incarnation == hello.incarnation &&
      stream < known->second.stream) {
    // Threads of the server may hand over the Hello of a stream that the worker gave
    // up after that of its next one. Not final, in case it was the other way round.
    out.end.push_back({stream, absl::UnavailableError("the worker opened a newer stream")});
    return;
  }
  if (absl::IsCancelled(decision.why)) {
    // The stream's status alone might be one that a proxy made.
    out.send.push_back({stream, AbortEpoch{job.last_epoch, decision.why}});
  }
  if (decision.greeting == Greeting::kRefuse || decision.greeting == Greeting::kAlreadyLeft) {
    out.end.push_back({stream, decision.why});
    return;
  }

  if (decision.greeting == Greeting::kReplace) {
    const bool was_member = job.FindMember(hello.worker) != nullptr;
    const int rank = job.RankOf(hello.worker);
    PutOut(job, hello.worker,
           absl::AbortedError(absl::StrCat("worker '", hello.worker,
                                           "' was started again (incarnation ",
                                           hello.incarnation.value(), "); this one is over")),
           out);
    if (was_member) {
      EndEpoch(job, absl::UnavailableError(absl::StrCat("worker '", hello.worker, "' (rank ", rank,
                                                        ") of epoch ", job.epoch->id.value(),
                                                        " was started again")),
               out);
    }
  } else if (decision.greeting == Greeting::kRejoin) {
    EndEpoch(job, absl::UnavailableError(absl::StrCat(
                      "worker '", hello.worker, "' (rank ", job.RankOf(hello.worker),
                      ") no longer takes part in epoch ", job.epoch->id.value())),
             out);
  }

  WorkerState& worker = job.workers[hello.worker];
  if (worker.stream.valid()) {
    streams_.erase(worker.stream);
    out.end.push_back(
        {worker.stream, absl::UnavailableError("the worker opened a newer stream")});
  }
  worker.name = hello.worker;
  worker.incarnation = hello.incarnation;
  worker.stream = stream;
  worker.last_heard = now;
  worker.broke_at.reset();
  worker.manifest = hello.manifest;
  worker.is_presumed = false;
  worker.transport = hello.transport;
  worker.told.clear();
  streams_[stream] = {hello.job, hello.worker};
  out.send.push_back({stream, Welcome{.generation = state_.generation,
                                      .lease = job.spec.lease,
                                      .heartbeat_interval = HeartbeatInterval(job.spec)}});
  if (hello.epoch.valid() && decision.greeting != Greeting::kResume) {
    // As when the coordinator was started again while the epoch formed.
    out.send.push_back({stream, EpochIsOver(job, hello.epoch)});
  }
  switch (decision.greeting) {
    case Greeting::kPropose:
      SendProposal(job, worker, MakeProposal(job), out);
      break;
    case Greeting::kResume:
      worker.sent = std::max(hello.log_number, job.epoch->log_number);
      if (job.stage == JobStage::kRunning) {
        worker.stage = WorkerStage::kTraining;
        worker.step_since = now;
        // It was lost if the stream broke in between.
        out.send.push_back({stream, Start{job.epoch->id}});
      } else {
        worker.stage = WorkerStage::kPreparing;
        if (job.epoch->endpoint) {
          out.send.push_back({stream, Endpoint{job.epoch->id, *job.epoch->endpoint}});
        }
      }
      break;
    default:
      worker.stage = WorkerStage::kAttending;
      worker.sent = LogNumber();
      break;
  }
  unsettled_.insert(job.spec.name);
}

void CoordinatorFsm::NoteStep(JobState& job, WorkerState& worker, std::int64_t step) {
  if (step != worker.step) worker.step_since = now_;
  worker.step = step;
  if (step <= job.epoch->highest_step) return;
  job.epoch->highest_step = step;
  job.epoch->highest_since = now_;
  // The others may be behind from now on.
  if (job.spec.stall_timeout > absl::ZeroDuration()) {
    MonoTime& wake = wake_[job.spec.name];
    wake = std::min(wake, now_ + job.spec.stall_timeout);
  }
}

void CoordinatorFsm::Hear(JobState& job, WorkerState& worker, const Heartbeat& message,
                          Effects& out) {
  if (message.epoch.valid() && !IsCurrent(job, worker, message.epoch, out)) return;
  worker.phase = message.phase;
  worker.metrics = message.metrics;
  if (message.epoch.valid()) {
    NoteStep(job, worker, message.step);
    worker.sync = message.sync;
  }
  // Only as an answer, so that a thousand joining workers do not cause a million
  // messages.
  if (worker.stage != WorkerStage::kAttending || worker.told == job.detail) return;
  worker.told = job.detail;
  out.send.push_back({worker.stream, Waiting{job.detail}});
}

void CoordinatorFsm::Hear(JobState& job, WorkerState& worker, const Endpoint& message,
                          Effects& out) {
  if (!IsCurrent(job, worker, message.epoch, out)) return;
  EpochState& epoch = *job.epoch;
  // Some members may use the first one already, so that a second is of no use.
  if (job.RankOf(worker.name) != 0 || epoch.stage != EpochStage::kProposed || epoch.endpoint) {
    return;
  }
  epoch.endpoint = message.bytes;
  const auto shared =
      std::make_shared<const CoordinatorMessage>(Endpoint{epoch.id, message.bytes});
  for (const Member& member : epoch.members) {
    const StreamId stream = job.workers.at(member.worker).stream;
    if (stream.valid()) out.send.push_back({stream, shared});
  }
}

void CoordinatorFsm::Hear(JobState& job, WorkerState& worker, const Ready& message,
                          Effects& out) {
  if (!IsCurrent(job, worker, message.epoch, out)) return;
  if (worker.stage != WorkerStage::kPreparing) return;
  const std::uint64_t expected = job.epoch->plan_digest;
  if (message.plan_digest != expected) {
    const absl::Status why = absl::InvalidArgumentError(absl::StrFormat(
        "worker '%s' (rank %d) of epoch %d has shard plan %016x, expected %016x; run the same "
        "release of Lockstep everywhere",
        worker.name, job.RankOf(worker.name), job.epoch->id.value(), message.plan_digest,
        expected));
    PutOut(job, std::string(worker.name), why, out);
    EndEpoch(job, why, out);
    return;
  }
  worker.stage = WorkerStage::kReady;
  worker.plan_digest = message.plan_digest;
  worker.optimizer_bytes = message.optimizer_bytes;
}

void CoordinatorFsm::Hear(JobState& job, WorkerState& worker, const Applied& message,
                          Effects& out) {
  if (!IsCurrent(job, worker, message.epoch, out)) return;
  const bool was_sent = message.number > job.epoch->log_number && message.number <= worker.sent;
  if (worker.stage != WorkerStage::kTraining || !was_sent) return;
  const LoggedEntry& logged = job.log[static_cast<std::size_t>(message.number.value() - 1)];
  NoteStep(job, worker, std::max(worker.step, message.step));
  // Said again after a reconnect.
  if (logged.applied.contains(worker.name)) return;
  Persist(EntryApplied{job.spec.name, message.number, worker.name, message.step}, out);
}

void CoordinatorFsm::Hear(JobState& job, WorkerState& worker, const Leave& message,
                          Effects& out) {
  const std::string name = worker.name;
  if (job.FindMember(name) == nullptr) {
    PutOut(job, name, absl::OkStatus(), out);
    return;
  }
  const EpochState& epoch = *job.epoch;
  const bool has_finished = epoch.stage == EpochStage::kRunning && message.epoch == epoch.id &&
                            message.why.ok();
  if (has_finished && epoch.left.size() + 1 == epoch.members.size()) {
    PutOut(job, name, absl::OkStatus(), out);
    EndEpoch(job, absl::OkStatus(), out);
    return;
  }
  if (has_finished) {
    Persist(MemberLeft{job.spec.name, epoch.id, name}, out);
    streams_.erase(worker.stream);
    out.end.push_back({worker.stream, absl::OkStatus()});
    worker.stream = StreamId();
    worker.stage = WorkerStage::kLeft;
    return;
  }
  const absl::Status why = absl::UnavailableError(absl::StrCat(
      "worker '", name, "' (rank ", job.RankOf(name), ") of epoch ", epoch.id.value(), " left: ",
      message.why.ok() ? "it did not take part in it" : message.why.ToString()));
  PutOut(job, name, absl::OkStatus(), out);
  EndEpoch(job, why, out);
}

}  // namespace lockstep
