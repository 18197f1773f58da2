#include "coordinator/rpc/page.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lockstep {

absl::StatusOr<Page> ParsePage(absl::string_view list, const PageLimits& limits,
                               std::int32_t page_size, const std::string& page_token) {
  if (page_size < 0) {
    return absl::InvalidArgumentError(absl::StrCat("page_size is ", page_size,
                                                   ", but must be 1 to ", limits.max_size,
                                                   ", or 0 for the default"));
  }
  Page page;
  page.size = page_size == 0 ? limits.default_size : std::min(page_size, limits.max_size);
  if (page_token.empty()) return page;
  std::string decoded;
  const std::string prefix = absl::StrCat(list, "/");
  if (!absl::WebSafeBase64Unescape(page_token, &decoded) ||
      !absl::StartsWith(decoded, prefix) || decoded.size() == prefix.size()) {
    return absl::InvalidArgumentError(
        "page_token is not one that this list gave; begin again without a token");
  }
  page.after = decoded.substr(prefix.size());
  return page;
}

std::string PageToken(absl::string_view list, absl::string_view last_key) {
  return absl::WebSafeBase64Escape(absl::StrCat(list, "/", last_key));
}

}  // namespace lockstep
