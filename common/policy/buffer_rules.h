// BufferRules: a policy, compiled: how is this buffer treated?
//
// Pure; thread-safe after construction.
#ifndef LOCKSTEP_COMMON_POLICY_BUFFER_RULES_H_
#define LOCKSTEP_COMMON_POLICY_BUFFER_RULES_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/policy/pattern.h"
#include "common/policy/sync_policy.h"

namespace lockstep {

// A rule with the policy's defaults filled in.
struct Treatment {
  Operation operation = Operation::kBroadcast;
  Root root;
  Schedule schedule;
};

// What the policy says about one buffer. Whether it is due is another question,
// and the master switch plays no part.
struct BufferMatch {
  enum class Why {
    kTreated,     // as treatments()[treatment]
    kNotAllowed,  // the allow list does not name it
    kIgnored,     // ignore_list[pattern] names it
  };
  Why why = Why::kTreated;
  int treatment = -1;  // -1: excluded
  int pattern = -1;    // of the ignore list
};

class BufferRules {
 public:
  // Errors: those of Validate(policy).
  static absl::StatusOr<BufferRules> Compile(const SyncPolicy& policy);

  // Takes time in proportion to the number of patterns that are no plain names.
  BufferMatch Find(absl::string_view name) const;
  // Whether the buffer is ever made equal: treated, and by another operation than
  // kNone. Takes as long as Find().
  bool Synchronises(absl::string_view name) const;

  // One for each rule of the policy, in order, and the policy's own at the end.
  const std::vector<Treatment>& treatments() const { return treatments_; }
  const PolicyPatterns& patterns() const { return patterns_; }

 private:
  // Finds the first pattern of a list that matches.
  class Index {
   public:
    Index() = default;
    explicit Index(const std::vector<Pattern>& patterns);
    int FirstMatch(absl::string_view name) const;  // -1: none

   private:
    std::map<std::string, int, std::less<>> names_;  // the first of each
    std::vector<std::pair<int, Pattern>> others_;    // in order
  };

  BufferRules() = default;

  PolicyPatterns patterns_;
  Index allow_;
  Index ignore_;
  Index rules_;
  std::vector<Treatment> treatments_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_BUFFER_RULES_H_
