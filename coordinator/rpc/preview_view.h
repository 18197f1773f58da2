// A policy's preview as the API shows it, page by page. Pure; thread-safe.
#ifndef LOCKSTEP_COORDINATOR_RPC_PREVIEW_VIEW_H_
#define LOCKSTEP_COORDINATOR_RPC_PREVIEW_VIEW_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "common/policy/preview.h"
#include "coordinator/rpc/page.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

// The buffers from the first one of the page on. Errors: InvalidArgument: the
// page's token is not of such a preview.
absl::StatusOr<v1::PreviewSyncPolicyResponse> ViewOfPreview(const PolicyPreview& preview,
                                                            const Page& page);

// Errors: those of ParsePage.
absl::StatusOr<Page> ParsePreviewPage(const v1::PreviewSyncPolicyRequest& request);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_PREVIEW_VIEW_H_
