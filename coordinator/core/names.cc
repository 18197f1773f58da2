#include "coordinator/core/names.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace lockstep {

bool IsJobName(absl::string_view name) {
  if (name.empty() || name.size() > 63 || !absl::ascii_islower(name.front())) return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  });
}

bool IsWorkerName(absl::string_view name) {
  if (name.empty() || name.size() > 253) return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
  });
}

}  // namespace lockstep
