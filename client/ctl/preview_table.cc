#include "client/ctl/preview_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/ctl/policy_words.h"
#include "client/ctl/table.h"
#include "common/policy/sync_policy.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

constexpr Table::Align kRight = Table::Align::kRight;
constexpr std::size_t kRootWidth = 20;
constexpr std::size_t kWhenWidth = 24;

bool IsSynced(const v1::BufferPreview& buffer) {
  return buffer.selection() == v1::BufferPreview::SELECTION_SYNCED;
}

std::string DescribeRoot(const v1::BufferPreview& buffer) {
  const absl::StatusOr<Root> root = FromProto(buffer.root());
  return root.ok() ? Describe(*root) : "unknown";
}

std::string DescribeSchedule(const v1::BufferPreview& buffer) {
  const absl::StatusOr<Schedule> schedule = FromProto(buffer.schedule());
  return schedule.ok() ? Describe(*schedule) : "unknown";
}

// "mean", "ignored".
std::string WhatHappens(const v1::BufferPreview& buffer) {
  switch (buffer.selection()) {
    case v1::BufferPreview::SELECTION_SYNCED:
      return OperationWord(buffer.operation());
    case v1::BufferPreview::SELECTION_NOT_ALLOWED:
      return "not allowed";
    case v1::BufferPreview::SELECTION_IGNORED:
      return "ignored";
    case v1::BufferPreview::SELECTION_RANK_LOCAL:
      return "rank-local";
    default:
      return "unknown";
  }
}

std::string RootCell(const v1::BufferPreview& buffer) {
  if (!IsSynced(buffer)) return "-";
  const std::string root = DescribeRoot(buffer);
  if (buffer.root_worker().empty() || buffer.root().worker() == buffer.root_worker()) return root;
  return absl::StrCat(root, " (", buffer.root_worker(), ")");
}

std::string DecidedBy(const v1::BufferPreview& buffer) {
  switch (buffer.selection()) {
    case v1::BufferPreview::SELECTION_NOT_ALLOWED:
      return "allow_list";
    case v1::BufferPreview::SELECTION_IGNORED:
      return absl::StrCat("ignore_list: ", buffer.pattern());
    default:
      break;
  }
  if (!buffer.has_rule()) return "the policy";
  return absl::StrCat("rules[", buffer.rule(), "]: ", buffer.pattern());
}

std::string RenderCosts(const v1::PreviewSyncPolicyResponse& preview) {
  Table table({{.title = "MOMENT"},
               {.title = "BUFFERS", .align = kRight},
               {.title = "TRANSFERS", .align = kRight},
               {.title = "BYTES", .align = kRight}});
  const std::pair<const char*, const v1::SyncCost*> moments[] = {
      {"at start", &preview.at_start()},
      {"before forward", &preview.before_forward()},
      {"after step", &preview.after_step()},
      {"before evaluation", &preview.before_evaluation()},
      {"before checkpoint", &preview.before_checkpoint()},
      {"on command", &preview.on_command()},
  };
  for (const auto& [name, cost] : moments) {
    table.AddRow({name, absl::StrCat(cost->buffers()), absl::StrCat(cost->transfers()),
                  absl::StrCat(cost->bytes())});
  }
  return table.ToString();
}

}  // namespace

std::string DescribeTreatment(const v1::BufferPreview& buffer) {
  if (!IsSynced(buffer)) return WhatHappens(buffer);
  return absl::StrCat(WhatHappens(buffer), ", root ", DescribeRoot(buffer), "; ",
                      DescribeSchedule(buffer));
}

std::string RenderPreview(const v1::PreviewSyncPolicyResponse& preview) {
  Table table({{.title = "BUFFER"},
               {.title = "TYPE"},
               {.title = "WHAT HAPPENS"},
               {.title = "ROOT", .max_width = kRootWidth},
               {.title = "WHEN", .max_width = kWhenWidth},
               {.title = "BYTES", .align = kRight},
               {.title = "DECIDED BY"}});
  for (const v1::BufferPreview& buffer : preview.buffers()) {
    table.AddRow({buffer.name(), buffer.type(), WhatHappens(buffer), RootCell(buffer),
                  IsSynced(buffer) ? DescribeSchedule(buffer) : "-",
                  absl::StrCat(buffer.bytes()), DecidedBy(buffer)});
  }
  std::string text = absl::StrCat(table.ToString(), "\n", preview.synced_buffers(), " of ",
                                  preview.total_buffers(), " buffers are synchronised\n\n",
                                  RenderCosts(preview));
  if (preview.warnings_size() > 0) absl::StrAppend(&text, "\n");
  for (const std::string& warning : preview.warnings()) {
    absl::StrAppend(&text, "warning: ", warning, "\n");
  }
  return text;
}

}  // namespace lockstep
