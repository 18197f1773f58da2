#include "common/base/text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {

std::string ListNames(const std::vector<std::string>& names, int limit) {
  if (names.empty()) return "none";
  const auto shown = std::min<std::size_t>(names.size(), limit);
  std::string text =
      absl::StrJoin(names.begin(), names.begin() + shown, ", ");
  if (shown < names.size()) {
    absl::StrAppend(&text, " and ", names.size() - shown, " more");
  }
  return text;
}

}  // namespace lockstep
