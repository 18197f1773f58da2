// A policy's preview as the API shows it, page by page. Pure; thread-safe.
#ifndef LOCKSTEP_COORDINATOR_RPC_PREVIEW_VIEW_H_
#define LOCKSTEP_COORDINATOR_RPC_PREVIEW_VIEW_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "common/policy/preview.h"
#include "coordinator/rpc/page.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

// The index of the page's first buffer among `count`. Errors: InvalidArgument: the
// page's token is not of such a preview.
absl::StatusOr<std::int64_t> FirstOfPage(const Page& page, std::int64_t count);

// The first page, with all but buffers of the whole model.
v1::PreviewSyncPolicyResponse ViewOfPreview(const PolicyPreview& preview, const Page& page);

// A later page: of `count` buffers `rows` are those from `first` on, as many as fit
// a page or more.
v1::PreviewSyncPolicyResponse ViewOfRows(std::span<const BufferPreview> rows, std::int64_t first,
                                         std::int64_t count, const Page& page);

// Errors: those of ParsePage.
absl::StatusOr<Page> ParsePreviewPage(const v1::PreviewSyncPolicyRequest& request);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_PREVIEW_VIEW_H_
