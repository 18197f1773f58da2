#include "client/ctl/policy_edit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/ctl/policy_words.h"
#include "common/base/status_macros.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

using Patterns = google::protobuf::RepeatedPtrField<std::string>;

void EditPatterns(bool clear, const std::vector<std::string>& added, Patterns* patterns) {
  if (clear) patterns->Clear();
  for (const std::string& pattern : added) {
    if (std::find(patterns->begin(), patterns->end(), pattern) == patterns->end()) {
      *patterns->Add() = pattern;
    }
  }
}

bool NamesASchedule(const PolicyEdit& edit) {
  return edit.at_start || edit.every_forwards || edit.every_steps || edit.before_evaluation ||
         edit.before_checkpoint;
}

void EditSchedule(const PolicyEdit& edit, v1::SyncPolicy& policy) {
  if (!NamesASchedule(edit)) return;
  // In a schedule that is given, what is not set is off.
  if (!policy.has_schedule()) *policy.mutable_schedule() = ToProto(Schedule{});
  v1::Schedule& schedule = *policy.mutable_schedule();
  if (edit.at_start) schedule.set_at_start(*edit.at_start);
  if (edit.every_forwards) schedule.set_every_forwards(*edit.every_forwards);
  if (edit.every_steps) schedule.set_every_steps(*edit.every_steps);
  if (edit.before_evaluation) schedule.set_before_evaluation(*edit.before_evaluation);
  if (edit.before_checkpoint) schedule.set_before_checkpoint(*edit.before_checkpoint);
}

}  // namespace

bool PolicyEdit::names_nothing() const {
  return !base && !broadcast_buffers && !clear_allow && allow.empty() && !clear_ignore &&
         ignore.empty() && !clear_rules && rules.empty() && !operation && !clear_root && !root &&
         !NamesASchedule(*this) && !skip_unchanged && !parameters_at_start &&
         !parameters_every_steps && !check_parameters_every_steps;
}

absl::StatusOr<v1::SyncPolicy> Apply(const PolicyEdit& edit, const v1::SyncPolicy& present) {
  v1::SyncPolicy policy = edit.base.value_or(present);
  if (edit.broadcast_buffers) policy.set_broadcast_buffers(*edit.broadcast_buffers);
  EditPatterns(edit.clear_allow, edit.allow, policy.mutable_allow_list());
  EditPatterns(edit.clear_ignore, edit.ignore, policy.mutable_ignore_list());
  if (edit.clear_rules) policy.clear_rules();
  for (const std::string& rule : edit.rules) {
    LOCKSTEP_ASSIGN_OR_RETURN(*policy.add_rules(), ParseRule(rule));
  }
  if (edit.operation) {
    LOCKSTEP_ASSIGN_OR_RETURN(const v1::Operation operation, ParseOperation(*edit.operation));
    policy.set_operation(operation);
  }
  if (edit.clear_root) policy.clear_root();
  if (edit.root) {
    LOCKSTEP_ASSIGN_OR_RETURN(*policy.mutable_root(), ParseRoot(*edit.root));
  }
  EditSchedule(edit, policy);
  if (edit.skip_unchanged) policy.set_skip_unchanged(*edit.skip_unchanged);
  if (edit.parameters_at_start) {
    policy.set_broadcast_parameters_at_start(*edit.parameters_at_start);
  }
  if (edit.parameters_every_steps) {
    policy.set_broadcast_parameters_every_steps(*edit.parameters_every_steps);
  }
  if (edit.check_parameters_every_steps) {
    policy.set_check_parameters_every_steps(*edit.check_parameters_every_steps);
  }
  return policy;
}

std::string NoteOnPeriods(const PolicyEdit& edit, const v1::SyncPolicy& edited) {
  const v1::Schedule& schedule = edited.schedule();
  const bool are_both_on = schedule.every_forwards() > 0 && schedule.every_steps() > 0;
  if (!are_both_on || edit.every_forwards.has_value() == edit.every_steps.has_value()) return "";
  const bool names_steps = edit.every_steps.has_value();
  return absl::StrCat(
      "every-forwards (", schedule.every_forwards(), ") and every-steps (", schedule.every_steps(),
      ") are both on; --every-", names_steps ? "forwards" : "steps", " 0 turns the other off");
}

}  // namespace lockstep
