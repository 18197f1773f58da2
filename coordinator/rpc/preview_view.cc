#include "coordinator/rpc/preview_view.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

constexpr PageLimits kBufferPages = {.default_size = 1000, .max_size = 10'000};
constexpr char kList[] = "preview";

v1::BufferPreview::Selection ViewOf(BufferPreview::Selection selection) {
  switch (selection) {
    case BufferPreview::Selection::kSynced:
      return v1::BufferPreview::SELECTION_SYNCED;
    case BufferPreview::Selection::kNotAllowed:
      return v1::BufferPreview::SELECTION_NOT_ALLOWED;
    case BufferPreview::Selection::kIgnored:
      return v1::BufferPreview::SELECTION_IGNORED;
    case BufferPreview::Selection::kRankLocal:
      return v1::BufferPreview::SELECTION_RANK_LOCAL;
  }
  return v1::BufferPreview::SELECTION_UNSPECIFIED;
}

v1::BufferPreview ViewOf(const BufferPreview& row) {
  v1::BufferPreview view;
  view.set_name(row.name);
  view.set_type(row.type);
  view.set_selection(ViewOf(row.selection));
  view.set_pattern(row.pattern);
  if (row.rule) view.set_rule(*row.rule);
  if (row.selection != BufferPreview::Selection::kSynced) return view;
  view.set_operation(static_cast<v1::Operation>(row.operation));
  *view.mutable_root() = ToProto(row.root);
  view.set_root_worker(row.root_worker);
  *view.mutable_schedule() = ToProto(row.schedule);
  view.set_bytes(row.bytes);
  return view;
}

v1::SyncCost ViewOf(const SyncCost& cost) {
  v1::SyncCost view;
  view.set_buffers(cost.buffers);
  view.set_transfers(cost.transfers);
  view.set_bytes(cost.bytes);
  return view;
}

}  // namespace

absl::StatusOr<Page> ParsePreviewPage(const v1::PreviewSyncPolicyRequest& request) {
  return ParsePage(kList, kBufferPages, request.page_size(), request.page_token());
}

absl::StatusOr<std::int64_t> FirstOfPage(const Page& page, std::int64_t count) {
  std::int64_t first = 0;
  const bool is_given = page.after.empty() || (absl::SimpleAtoi(page.after, &first) && first > 0 &&
                                               first < count);
  if (is_given) return first;
  return absl::InvalidArgumentError(
      "page_token is not one that this list gave; begin again without a token");
}

v1::PreviewSyncPolicyResponse ViewOfPreview(const PolicyPreview& preview, const Page& page) {
  v1::PreviewSyncPolicyResponse view =
      ViewOfRows(preview.buffers, 0, static_cast<std::int64_t>(preview.buffers.size()), page);
  *view.mutable_at_start() = ViewOf(preview.at_start);
  *view.mutable_before_forward() = ViewOf(preview.before_forward);
  *view.mutable_after_step() = ViewOf(preview.after_step);
  *view.mutable_before_evaluation() = ViewOf(preview.before_evaluation);
  *view.mutable_before_checkpoint() = ViewOf(preview.before_checkpoint);
  *view.mutable_on_command() = ViewOf(preview.on_command);
  view.set_total_buffers(preview.total_buffers);
  view.set_synced_buffers(preview.synced_buffers);
  for (const std::string& warning : preview.warnings) view.add_warnings(warning);
  return view;
}

v1::PreviewSyncPolicyResponse ViewOfRows(std::span<const BufferPreview> rows, std::int64_t first,
                                         std::int64_t count, const Page& page) {
  v1::PreviewSyncPolicyResponse view;
  PageFill fill(page);
  for (const BufferPreview& row : rows) {
    if (!fill.Fits()) break;
    v1::BufferPreview* added = view.add_buffers();
    *added = ViewOf(row);
    fill.Add(added->ByteSizeLong());
  }
  const std::int64_t next = first + view.buffers_size();
  if (next < count) view.set_next_page_token(PageToken(kList, absl::StrCat(next)));
  return view;
}

}  // namespace lockstep
