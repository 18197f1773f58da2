// PolicyEdit: the changes to a sync policy that a command line names.
//
// A policy is always replaced as a whole; so the tool reads it, applies the edit
// and sends it back. What the edit does not name stays. Pure; thread-compatible.
#ifndef LOCKSTEP_CLIENT_CTL_POLICY_EDIT_H_
#define LOCKSTEP_CLIENT_CTL_POLICY_EDIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

struct PolicyEdit {
  std::optional<v1::SyncPolicy> base;  // begin with this one, not the present one
  std::optional<bool> broadcast_buffers;
  bool clear_allow = false;  // before `allow` is added
  std::vector<std::string> allow;
  bool clear_ignore = false;  // before `ignore` is added
  std::vector<std::string> ignore;
  bool clear_rules = false;  // before `rules` are appended
  std::vector<std::string> rules;  // as ParseRule() takes them
  std::optional<std::string> operation;  // as ParseOperation() takes it
  bool clear_root = false;
  std::optional<std::string> root;  // as ParseRoot() takes it
  std::optional<bool> at_start;
  std::optional<std::int64_t> every_forwards;
  std::optional<std::int64_t> every_steps;
  std::optional<bool> before_evaluation;
  std::optional<bool> before_checkpoint;
  std::optional<bool> skip_unchanged;
  std::optional<bool> parameters_at_start;
  std::optional<std::int64_t> parameters_every_steps;
  std::optional<std::int64_t> check_parameters_every_steps;

  bool names_nothing() const;
};

// Patterns of the lists that are there already are not added twice. Where the
// policy has no schedule, what is not named of it keeps its default.
// Errors: InvalidArgument: those of the Parse functions in policy_words.h.
absl::StatusOr<v1::SyncPolicy> Apply(const PolicyEdit& edit, const v1::SyncPolicy& present);

// A sentence for who names one period of the schedule and may not know that the
// other is on in `edited`, which Apply() made; empty: there is nothing to note.
std::string NoteOnPeriods(const PolicyEdit& edit, const v1::SyncPolicy& edited);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_POLICY_EDIT_H_
