// PolicyWriter: asks a job's coordinator for policy revisions, in one worker's name.
//
// The seam between what a link means (attendance.h) and how a call travels
// (grpc_policy_writer.h; a fake in tests). Thread-safe.
#ifndef LOCKSTEP_WORKER_AGENT_POLICY_WRITER_H_
#define LOCKSTEP_WORKER_AGENT_POLICY_WRITER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/policy/sync_policy.h"

namespace lockstep {

class PolicyWriter {
 public:
  virtual ~PolicyWriter() = default;

  // Waits for the answer: the number of the revision that holds `policy`.
  // Errors: as CoordinatorLink::RevisePolicy().
  virtual absl::StatusOr<Revision> Revise(const SyncPolicy& policy, const std::string& reason,
                                          absl::Duration timeout) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_POLICY_WRITER_H_
