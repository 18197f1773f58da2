// PolicyInput: any bytes, read as a policy message, a model and the members of an
// epoch. Readable, so that a finding can be understood and seeds written by hand:
//
//   t                               the policy is t(extproto), j(son) or w(ire bytes)
//   broadcast_buffers: false
//   --                              a line of its own; without it a model is made up
//   float32[64] bn1.running_mean    a buffer for each line: type[dimensions] name
//   worker w1                       a member
//
// Nothing is refused: what is malformed is read as something else or left out. The
// model passes Validate, and the names of members can be shown. Pure.
#ifndef LOCKSTEP_TESTS_FUZZ_POLICY_INPUT_H_
#define LOCKSTEP_TESTS_FUZZ_POLICY_INPUT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/manifest/manifest.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

struct PolicyInput {
  std::optional<v1::SyncPolicy> policy;  // nothing: not a message in that form
  Manifest manifest;                     // buffers only, at most 48
  std::vector<std::string> members;      // sorted, each once, at most 16
};

PolicyInput ReadPolicyInput(absl::string_view bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_FUZZ_POLICY_INPUT_H_
