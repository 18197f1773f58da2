#include "common/policy/preview.h"

#include <set>
#include <utility>

#include "common/base/status_macros.h"
#include "common/policy/buffer_rules.h"
#include "common/policy/schedule.h"
#include "common/policy/warnings.h"

namespace lockstep {
namespace {

// Counts the buffers of one occasion.
class Occasion {
 public:
  void Add(Operation operation, const std::string& root, std::int64_t bytes) {
    ++cost_.buffers;
    cost_.bytes += bytes;
    if (bytes == 0) return;
    // Reductions have no root.
    groups_.emplace(operation, operation == Operation::kBroadcast ? root : "");
  }
  SyncCost cost() const {
    SyncCost cost = cost_;
    cost.transfers = static_cast<std::int64_t>(groups_.size());
    return cost;
  }

 private:
  SyncCost cost_;
  std::set<std::pair<Operation, std::string>> groups_;
};

BufferPreview RowOf(const TensorSpec& buffer, const SyncPolicy& policy, const BufferRules& rules) {
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
    row.rule = match.treatment + 1;
  }
  const Treatment& how = rules.treatments()[treatment];
  if (how.operation == Operation::kNone) {
    row.selection = BufferPreview::Selection::kRankLocal;
    return row;
  }
  row.operation = how.operation;
  row.root = how.root;
  row.schedule = how.schedule;
  row.bytes = buffer.bytes();
  return row;
}

}  // namespace

absl::StatusOr<PolicyPreview> Preview(const SyncPolicy& policy, const Manifest& manifest,
                                      const std::vector<std::string>& members) {
  LOCKSTEP_ASSIGN_OR_RETURN(const BufferRules rules, BufferRules::Compile(policy));
  const auto is_ever_due = [&](bool is_in_schedule) {
    return policy.broadcast_buffers && is_in_schedule;
  };
  PolicyPreview preview;
  Occasion start, forward, step, evaluation, checkpoint, command;
  for (const TensorSpec& buffer : manifest.buffers) {
    BufferPreview row = RowOf(buffer, policy, rules);
    ++preview.total_buffers;
    if (row.selection == BufferPreview::Selection::kSynced) {
      ++preview.synced_buffers;
      std::string root = Describe(row.root);
      if (members.empty()) {
        if (row.root == Root(LowestRank{})) root = Describe(RootRank{0});
      } else {
        const ResolvedRoot resolved = ResolveRoot(row.root, members);
        row.root_worker = members[static_cast<std::size_t>(resolved.rank)];
        root = row.root_worker;
      }
      const Schedule& schedule = row.schedule;
      const auto add = [&](Occasion& occasion) { occasion.Add(row.operation, root, row.bytes); };
      if (schedule.at_start) start.Add(Operation::kBroadcast, root, row.bytes);
      if (is_ever_due(schedule.every_forwards > 0)) add(forward);
      if (is_ever_due(schedule.every_steps > 0)) add(step);
      if (is_ever_due(schedule.before_evaluation)) add(evaluation);
      if (is_ever_due(schedule.before_checkpoint)) add(checkpoint);
      add(command);
    }
    preview.buffers.push_back(std::move(row));
  }
  preview.at_start = start.cost();
  preview.before_forward = forward.cost();
  preview.after_step = step.cost();
  preview.before_evaluation = evaluation.cost();
  preview.before_checkpoint = checkpoint.cost();
  preview.on_command = command.cost();
  preview.warnings = FindWarnings(policy, rules, manifest, members);
  return preview;
}

}  // namespace lockstep
