#include "client/ctl/policy_edit.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

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

}  // namespace

bool PolicyEdit::names_nothing() const {
  return !base && !broadcast_buffers && !clear_allow && allow.empty() && !clear_ignore &&
         ignore.empty() && !clear_root && !root && !at_start && !every_forwards && !every_steps &&
         !before_evaluation && !parameters_at_start;
}

absl::StatusOr<v1::Root> ParseRoot(const std::string& text) {
  if (text.empty()) {
    return absl::InvalidArgumentError("the root is empty; give a rank or a worker's name");
  }
  v1::Root root;
  const bool is_number = std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (!is_number && text[0] != '-') {
    root.set_worker(text);
    return root;
  }
  std::int64_t rank = 0;
  if (!absl::SimpleAtoi(text, &rank) || rank < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the root '", text, "' is neither a rank, from 0, nor a worker's name"));
  }
  root.set_rank(rank);
  return root;
}

absl::StatusOr<v1::SyncPolicy> Apply(const PolicyEdit& edit, const v1::SyncPolicy& present) {
  v1::SyncPolicy policy = edit.base.value_or(present);
  if (edit.broadcast_buffers) policy.set_broadcast_buffers(*edit.broadcast_buffers);
  EditPatterns(edit.clear_allow, edit.allow, policy.mutable_allow_list());
  EditPatterns(edit.clear_ignore, edit.ignore, policy.mutable_ignore_list());
  if (edit.clear_root) policy.clear_root();
  if (edit.root) {
    LOCKSTEP_ASSIGN_OR_RETURN(*policy.mutable_root(), ParseRoot(*edit.root));
  }
  if (edit.at_start) policy.mutable_schedule()->set_at_start(*edit.at_start);
  if (edit.every_forwards) policy.mutable_schedule()->set_every_forwards(*edit.every_forwards);
  if (edit.every_steps) policy.mutable_schedule()->set_every_steps(*edit.every_steps);
  if (edit.before_evaluation) {
    policy.mutable_schedule()->set_before_evaluation(*edit.before_evaluation);
  }
  if (edit.parameters_at_start) {
    policy.set_broadcast_parameters_at_start(*edit.parameters_at_start);
  }
  return policy;
}

}  // namespace lockstep
