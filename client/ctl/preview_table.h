// What a policy would do to each buffer, as lines for people. Pure; thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_PREVIEW_TABLE_H_
#define LOCKSTEP_CLIENT_CTL_PREVIEW_TABLE_H_

#include <string>

#include "lockstep/v1/policy.pb.h"

namespace lockstep {

// "mean, root worker w1; at start and every 100 steps", "ignored": what is done, not
// what decided it.
std::string DescribeTreatment(const v1::BufferPreview& buffer);

// A row per buffer, however many; the cost of each moment; warnings.
std::string RenderPreview(const v1::PreviewSyncPolicyResponse& preview);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_PREVIEW_TABLE_H_
