// CoordinatorLink: what a worker says to the coordinator and hears from it.
//
// An interface: over gRPC (grpc_link.h) or straight into a coordinator of the
// same process (tests). A running step calls only what never blocks.
// Thread-safe.
#ifndef LOCKSTEP_WORKER_AGENT_COORDINATOR_LINK_H_
#define LOCKSTEP_WORKER_AGENT_COORDINATOR_LINK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/protocol/messages.h"

namespace lockstep {

class CoordinatorLink {
 public:
  virtual ~CoordinatorLink() = default;

  // Waits until an epoch with this worker is proposed.
  // Errors: DeadlineExceeded: none in time; says what the job waits for as far
  //   as known. Unavailable: the coordinator was not reached. Otherwise the
  //   status with which the coordinator turned this worker away.
  virtual absl::StatusOr<Proposal> AwaitProposal(absl::Duration timeout) = 0;

  // Rank 0 gives its bytes, the others nothing; all get rank 0's.
  // Errors: DeadlineExceeded; Aborted: the epoch is over.
  virtual absl::StatusOr<std::string> ExchangeEndpoint(Epoch epoch,
                                                       const std::optional<std::string>& mine,
                                                       absl::Duration timeout) = 0;

  // Says Ready and waits for Start. Errors: as ExchangeEndpoint().
  virtual absl::Status AwaitStart(const Ready& ready, absl::Duration timeout) = 0;

  // Entries known so far that follow `after` without a gap. Never blocks.
  virtual std::vector<ControlEntry> EntriesAfter(LogNumber after) = 0;

  // Goes out with the next heartbeat. Never blocks.
  virtual void ReportProgress(std::int64_t step, Phase phase,
                              const std::map<std::string, double>& metrics,
                              const SyncCounters& sync) = 0;

  // Asks the coordinator to make `policy` the job's newest, in this worker's name;
  // the entry comes back in EntriesAfter(). Not collective; waits for the answer. If
  // it is the newest already no revision is made; of those in between, which it
  // undoes, nothing is known here.
  // Errors: those of UpdateSyncPolicy (proto/lockstep/v1/policy.proto);
  //   Unavailable, DeadlineExceeded: nothing is known about the outcome. The
  //   same call may be repeated, with the same reservation.
  virtual absl::StatusOr<Revision> RevisePolicy(const SyncPolicy& policy,
                                                const std::string& reason,
                                                absl::Duration timeout) = 0;

  // Goes out at once. Never blocks.
  virtual void ReportApplied(LogNumber number, std::int64_t step) = 0;

  // This worker takes no more part in `epoch` and waits for the next one; see
  // EpochStopped in common/protocol/messages.h. From now on the epoch is over here: its
  // waits end, OnAbort() is not called for it, and AwaitProposal() waits for a newer
  // one. Goes out at once, and again after a reconnect until the coordinator has said
  // that the epoch is over. Of an epoch that is over already: no effect. Never blocks.
  virtual void ReportStopped(Epoch epoch, std::int64_t step, const absl::Status& why) = 0;

  // `callback` runs, on a thread of the link, when the coordinator ends the
  // epoch of the last proposal; at once if that has happened already. A null
  // function removes it: afterwards the old one is not running.
  virtual void OnAbort(std::function<void(const absl::Status&)> callback) = 0;

  // Tells the coordinator that this worker stops; OK: its work is done. Waits
  // shortly for the message to go out; afterwards the link is closed. Not from
  // an OnAbort() callback.
  virtual void Leave(const absl::Status& why) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_COORDINATOR_LINK_H_
