// SessionOptions: how one worker takes part in a job.
#ifndef LOCKSTEP_WORKER_SESSION_SESSION_OPTIONS_H_
#define LOCKSTEP_WORKER_SESSION_SESSION_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/policy/sync_policy.h"
#include "security/tls_files.h"
#include "worker/engine/engine_options.h"

namespace lockstep {

struct SessionOptions {
  // Of the coordinator: "host:port". Empty: train alone, world size 1.
  std::string coordinator;
  // Certificates, where it speaks TLS; a worker's has the role "worker".
  TlsFiles tls;
  // Which training run, and this worker's stable name in it. Not needed alone.
  std::string job;
  std::string worker;
  // "shm": ranks of one host. "gloo": ranks of several. "nccl": ranks on GPUs, of one host
  // or several. Not used alone.
  std::string transport = "shm";
  // Network interface by which peers reach this worker over gloo, or meet it over nccl: as
  // "eth0" where they are on other hosts.
  std::string interface = "lo";
  // With nccl: the GPU that the module's parameters are on, as CUDA counts; one for each rank.
  int gpu = 0;
  // What Gloo moves as one message, 1 to 32 MiB; equal on all ranks. Small ones overlap
  // the network with the work on what arrived; large ones cost fewer messages.
  std::int64_t gloo_bucket_bytes = 2 << 20;
  // From attending to the first step, waiting for other workers included.
  absl::Duration join_timeout = absl::Minutes(5);
  // Of each collective operation; a rank that is later than this is missing.
  absl::Duration operation_timeout = absl::Seconds(60);
  // How long to wait for a new epoch when one is lost with a peer, or ends for others to join or
  // leave; 0: the loss of a peer is the end of this session, too.
  absl::Duration rejoin_timeout = absl::Minutes(5);
  // In force when training alone; else the job's policy is.
  SyncPolicy policy;
  // Where checkpoints go and when; no directory: there are none. `checkpoints.job` is filled in.
  CheckpointOptions checkpoints;
  // For measurements and tests of failures: called as a step advances, with the number of committed
  // steps, by the thread that takes it; must not call the session.
  std::function<void(StepPhase, std::int64_t step)> on_phase = nullptr;

  // Errors: InvalidArgument names the option, its value and what is allowed.
  absl::Status Validate() const;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_SESSION_SESSION_OPTIONS_H_
