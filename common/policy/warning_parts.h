// What the judgements behind warnings.h have in common.
//
// Pure; thread-compatible.
#ifndef LOCKSTEP_COMMON_POLICY_WARNING_PARTS_H_
#define LOCKSTEP_COMMON_POLICY_WARNING_PARTS_H_

#include <map>
#include <string>
#include <vector>

#include "common/base/text.h"
#include "common/manifest/manifest.h"
#include "common/policy/buffer_rules.h"

namespace lockstep {

// A buffer and what is done with it; null: nothing.
struct TreatedBuffer {
  const TensorSpec* buffer = nullptr;
  const Treatment* how = nullptr;
};

// At start all buffers are broadcast.
inline bool HasRoot(const Treatment& how) {
  return how.operation == Operation::kBroadcast || how.schedule.at_start;
}

// Names by what is said of them.
using NameGroups = std::map<std::string, std::vector<std::string>>;

// "'a', 'b' and 7 more"
inline std::string ListQuoted(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(Quoted(name));
  return ListNames(quoted);
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_WARNING_PARTS_H_
