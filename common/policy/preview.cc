#include "common/policy/preview.h"

#include <compare>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/policy/buffer_rules.h"
#include "common/policy/model_check.h"
#include "common/policy/schedule.h"
#include "common/policy/warnings.h"

namespace lockstep {
namespace {

// What goes in one transfer.
struct Batch {
  Operation operation = Operation::kBroadcast;
  std::string root;      // of kBroadcast
  std::string schedule;  // of kMeanBySamples

  auto operator<=>(const Batch&) const = default;
};

// Counts the buffers of one occasion.
class Occasion {
 public:
  void Add(Batch batch, std::int64_t bytes) {
    ++cost_.buffers;
    cost_.bytes += bytes;
    if (bytes > 0) batches_.insert(std::move(batch));
  }
  SyncCost cost() const {
    SyncCost cost = cost_;
    cost.transfers = static_cast<std::int64_t>(batches_.size());
    return cost;
  }

 private:
  SyncCost cost_;
  std::set<Batch> batches_;
};

BufferPreview RowOf(const TensorSpec& buffer, const SyncPolicy& policy, const BufferRules& rules,
                    const std::vector<std::string>& members) {
  BufferPreview row = {.name = buffer.name, .type = buffer.ToString()};
  const BufferMatch match = rules.Find(buffer.name);
  switch (match.why) {
    case BufferMatch::Why::kNotAllowed:
      row.selection = BufferPreview::Selection::kNotAllowed;
      return row;
    case BufferMatch::Why::kIgnored:
      row.selection = BufferPreview::Selection::kIgnored;
      row.pattern = policy.ignore_list[static_cast<std::size_t>(match.pattern)];
      return row;
    case BufferMatch::Why::kTreated:
      break;
  }
  const auto treatment = static_cast<std::size_t>(match.treatment);
  if (treatment < policy.rules.size()) {
    row.pattern = policy.rules[treatment].pattern;
    row.rule = match.treatment;
  }
  const Treatment& how = rules.treatments()[treatment];
  if (how.operation == Operation::kNone) {
    row.selection = BufferPreview::Selection::kRankLocal;
    return row;
  }
  row.operation = how.operation;
  row.root = how.root;
  if (!members.empty()) {
    row.root_worker = members[static_cast<std::size_t>(ResolveRoot(row.root, members).rank)];
  }
  row.schedule = InEffect(policy.broadcast_buffers, how.schedule);
  row.bytes = buffer.bytes();
  return row;
}

// Equal for roots that are the same rank.
std::string RootKey(const BufferPreview& row) {
  if (!row.root_worker.empty()) return row.root_worker;
  return Describe(row.root == Root(LowestRank{}) ? Root(RootRank{0}) : row.root);
}

// How a synced buffer goes at any moment but the start.
Batch BatchOf(const BufferPreview& row) {
  Batch batch = {.operation = row.operation};
  if (row.operation == Operation::kBroadcast) batch.root = RootKey(row);
  if (row.operation == Operation::kMeanBySamples) {
    Schedule schedule = row.schedule;
    schedule.at_start = false;  // before there are samples
    batch.schedule = Describe(schedule);
  }
  return batch;
}

void AddCosts(PolicyPreview& preview) {
  Occasion start, forward, step, evaluation, checkpoint, command;
  for (const BufferPreview& row : preview.buffers) {
    if (row.selection != BufferPreview::Selection::kSynced) continue;
    const Schedule& schedule = row.schedule;
    const Batch batch = BatchOf(row);
    if (schedule.at_start) start.Add({.root = RootKey(row)}, row.bytes);
    if (schedule.every_forwards > 0) forward.Add(batch, row.bytes);
    if (schedule.every_steps > 0) step.Add(batch, row.bytes);
    if (schedule.before_evaluation) evaluation.Add(batch, row.bytes);
    if (schedule.before_checkpoint) checkpoint.Add(batch, row.bytes);
    command.Add(batch, row.bytes);
  }
  preview.at_start = start.cost();
  preview.before_forward = forward.cost();
  preview.after_step = step.cost();
  preview.before_evaluation = evaluation.cost();
  preview.before_checkpoint = checkpoint.cost();
  preview.on_command = command.cost();
}

}  // namespace

absl::StatusOr<PolicyPreview> Preview(const SyncPolicy& policy, const Manifest& manifest,
                                      const std::vector<std::string>& members,
                                      const std::vector<std::string>& other_names) {
  LOCKSTEP_ASSIGN_OR_RETURN(const BufferRules rules, BufferRules::Compile(policy));
  std::vector<absl::string_view> names = BufferNames(manifest);
  names.insert(names.end(), other_names.begin(), other_names.end());
  LOCKSTEP_RETURN_IF_ERROR(CheckMatchWork(rules, names));
  PolicyPreview preview;
  for (const TensorSpec& buffer : manifest.buffers) {
    preview.buffers.push_back(RowOf(buffer, policy, rules, members));
    ++preview.total_buffers;
    preview.synced_buffers +=
        preview.buffers.back().selection == BufferPreview::Selection::kSynced;
  }
  if (members.size() != 1) AddCosts(preview);
  preview.warnings = FindWarnings(policy, rules, manifest, members, other_names);
  return preview;
}

absl::StatusOr<std::vector<BufferPreview>> PreviewBuffers(const SyncPolicy& policy,
                                                          const Manifest& manifest,
                                                          const std::vector<std::string>& members,
                                                          std::int64_t first,
                                                          std::int64_t count) {
  LOCKSTEP_ASSIGN_OR_RETURN(const BufferRules rules, BufferRules::Compile(policy));
  LOCKSTEP_RETURN_IF_ERROR(CheckMatchWork(rules, BufferNames(manifest)));
  const auto total = static_cast<std::int64_t>(manifest.buffers.size());
  std::vector<BufferPreview> rows;
  for (std::int64_t i = first; i < total && i - first < count; ++i) {
    rows.push_back(RowOf(manifest.buffers[static_cast<std::size_t>(i)], policy, rules, members));
  }
  return rows;
}

}  // namespace lockstep
