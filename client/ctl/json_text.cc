#include "client/ctl/json_text.h"

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace lockstep {

absl::StatusOr<nlohmann::json> ParseJsonText(const std::string& text, const std::string& source) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    const std::string before = text.substr(0, e.byte > 0 ? e.byte - 1 : 0);
    const std::vector<absl::string_view> lines = absl::StrSplit(before, '\n');
    absl::string_view what = e.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ...".
    if (const std::size_t colon = what.find(": "); colon != absl::string_view::npos) {
      what.remove_prefix(colon + 2);
    }
    return absl::InvalidArgumentError(absl::StrCat(source, ":", lines.size(), ":",
                                                   lines.back().size() + 1, ": ", what));
  }
}

}  // namespace lockstep
