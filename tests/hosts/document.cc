#include "tests/hosts/document.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

constexpr absl::string_view kFence = "```";

// The host of the block that `opening` begins; "": none.
absl::StatusOr<std::string> HostOf(absl::string_view opening, int line) {
  absl::string_view rest = opening;
  if (!absl::ConsumePrefix(&rest, "sh ")) return "";
  if (!absl::ConsumePrefix(&rest, "host=") || rest.empty() ||
      rest.find(' ') != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", Quoted(opening),
                                                   "; expected sh host=NAME"));
  }
  return std::string(rest);
}

}  // namespace

absl::StatusOr<std::vector<CommandBlock>> CommandBlocks(absl::string_view page) {
  std::vector<CommandBlock> blocks;
  std::optional<CommandBlock> open;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    ++number;
    const absl::string_view whole = line;
    if (!absl::ConsumePrefix(&line, kFence)) {
      if (open.has_value()) absl::StrAppend(&open->commands, whole, "\n");
      continue;
    }
    if (open.has_value()) {
      if (!open->host.empty()) blocks.push_back(*std::move(open));
      open.reset();
      continue;
    }
    absl::StatusOr<std::string> host = HostOf(line, number);
    if (!host.ok()) return host.status();
    open = CommandBlock{.host = *std::move(host), .line = number + 1};
  }
  if (open.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", open->line - 1, ": this fence is not closed"));
  }
  return blocks;
}

}  // namespace lockstep
