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
  bool clear_root = false;
  std::optional<std::string> root;  // a rank or a worker's name
  std::optional<bool> at_start;
  std::optional<std::int64_t> every_forwards;
  std::optional<std::int64_t> every_steps;
  std::optional<bool> before_evaluation;
  std::optional<bool> parameters_at_start;

  bool names_nothing() const;
};

// A number is a rank, everything else a worker's name.
// Errors: InvalidArgument: empty, or a number that is no rank.
absl::StatusOr<v1::Root> ParseRoot(const std::string& text);

// Patterns that are there already are not added twice.
// Errors: InvalidArgument: those of ParseRoot().
absl::StatusOr<v1::SyncPolicy> Apply(const PolicyEdit& edit, const v1::SyncPolicy& present);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_POLICY_EDIT_H_
