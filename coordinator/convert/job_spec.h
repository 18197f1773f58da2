// JobSpec <-> lockstep.v1: for the services and for the store. Pure functions.
#ifndef LOCKSTEP_COORDINATOR_CONVERT_JOB_SPEC_H_
#define LOCKSTEP_COORDINATOR_CONVERT_JOB_SPEC_H_

#include "absl/status/statusor.h"
#include "coordinator/core/state.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep {

v1::JobSpec ToProto(const JobSpec& spec);

// What is not set gets the default that the value's type states; the rules are
// Validate(JobSpec)'s matter. Errors: InvalidArgument names the field (a list
// that is too long, a duration or policy that is not one).
absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& proto);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CONVERT_JOB_SPEC_H_
