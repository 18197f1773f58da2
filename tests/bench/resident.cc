#include "tests/bench/resident.h"

#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"

namespace lockstep {

std::int64_t FieldBytes(absl::string_view text, absl::string_view field) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t:"), absl::SkipEmpty());
    std::int64_t kilobytes = 0;
    if (words.size() == 3 && words[0] == field && absl::SimpleAtoi(words[1], &kilobytes)) {
      return kilobytes * 1024;
    }
  }
  return -1;
}

Resident MeasureResident() {
  const std::string status = ReadFile("/proc/self/status").value_or("");
  return {.now_bytes = FieldBytes(status, "VmRSS"),
          .peak_bytes = FieldBytes(status, "VmHWM"),
          .proportional_bytes = FieldBytes(ReadFile("/proc/self/smaps_rollup").value_or(""), "Pss")};
}

void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace lockstep
