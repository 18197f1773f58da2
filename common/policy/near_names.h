// NearNames: which names somebody may have meant by a pattern that matches none.
//
// Pure functions.
#ifndef LOCKSTEP_COMMON_POLICY_NEAR_NAMES_H_
#define LOCKSTEP_COMMON_POLICY_NEAR_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep {

// The least number of characters (bytes) to insert, delete or replace in `glob`
// until it matches `name`: the Levenshtein distance, but for its stars, which
// match for free what they match in a Pattern. Nothing if it is above `limit`.
// Takes glob.size() * name.size() operations.
std::optional<int> EditDistance(absl::string_view glob, absl::string_view name, int limit);

// Up to `count` of `names`, nearest to the text of `pattern` first, equally near
// ones in their order; none that is far from it. An expression (re:) is compared
// as if `.*` were ** and without its escapes. Looks at as many names as bounded
// work allows.
std::vector<std::string> NearNames(absl::string_view pattern,
                                   const std::vector<absl::string_view>& names, int count);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_NEAR_NAMES_H_
