// What several policy commands ask of the coordinator.
#ifndef LOCKSTEP_CLIENT_CTL_POLICY_CALLS_H_
#define LOCKSTEP_CLIENT_CTL_POLICY_CALLS_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/ctl/context.h"
#include "client/ctl/policy_diff.h"
#include "client/ctl/policy_flags.h"

namespace lockstep {

// Errors: those of UpdateSyncPolicy.
absl::StatusOr<v1::SyncPolicyRevision> Send(Context& context, const std::string& job,
                                            const v1::SyncPolicy& policy, const std::string& etag,
                                            const SendFlags& flags);

// Waits, if that is asked for, and prints what became of the change to `present`.
ExitCode Conclude(Context& context, const std::string& job, const v1::SyncPolicyRevision& present,
                  v1::SyncPolicyRevision revision, const SendFlags& flags);

// A policy with the name it has in the output.
struct NamedPolicy {
  std::string name;
  v1::SyncPolicy policy;
};
NamedPolicy Named(const v1::SyncPolicyRevision& revision);

// Errors: those of PreviewSyncPolicy, but that no model is known yet.
absl::StatusOr<PolicyDiff> Compare(Context& context, const std::string& job,
                                   const NamedPolicy& before, const NamedPolicy& after);

// The revision before `newest`. Errors: NotFound: there is none.
absl::StatusOr<std::int64_t> RevisionBefore(const v1::SyncPolicyRevision& newest);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_POLICY_CALLS_H_
