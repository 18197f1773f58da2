#include "client/ctl/style.h"

#include "absl/strings/str_cat.h"

namespace lockstep {

std::string Paint(const std::string& text, Style style, Color color) {
  if (color == Color::kOff || style == Style::kPlain || text.empty()) return text;
  const char* const code = style == Style::kGood      ? "\x1b[32m"
                           : style == Style::kPending ? "\x1b[33m"
                                                      : "\x1b[31m";
  return absl::StrCat(code, text, "\x1b[0m");
}

}  // namespace lockstep
