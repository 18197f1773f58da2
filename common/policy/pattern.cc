#include "common/policy/pattern.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "re2/re2.h"

namespace lockstep {
namespace {

// Enough for the longest pattern of stars and names; a counted repetition of a
// repetition stops here instead of filling the coordinator's memory.
constexpr std::int64_t kExpressionBytes = 1 << 20;

constexpr absl::string_view kExpressionPrefix = "re:";

re2::StringPiece Piece(absl::string_view text) { return {text.data(), text.size()}; }

absl::Status Malformed(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("the pattern ", Quoted(text), " ", why));
}

// The same pattern as an expression on bytes: names and `.` in it are UTF-8, in
// which a byte below 0x80 is never part of another character.
absl::StatusOr<std::string> ExpressionOfGlob(absl::string_view glob) {
  std::string expression;
  for (std::size_t i = 0; i < glob.size();) {
    const absl::string_view rest = glob.substr(i);
    const bool starts_component = i == 0 || glob[i - 1] == '.';
    if (absl::StartsWith(rest, "***")) {
      return Malformed(glob, absl::StrCat("has three stars in a row at byte ", i,
                                          "; * matches within a component, ** across them"));
    }
    if (starts_component && absl::StartsWith(rest, "**.")) {
      expression += "(?:.*\\.)?";
      i += 3;
    } else if (absl::StartsWith(rest, "**")) {
      expression += ".*";
      i += 2;
    } else if (rest[0] == '*') {
      expression += "[^.]*";
      i += 1;
    } else {
      const std::size_t length = std::min(rest.find('*'), rest.size());
      expression += re2::RE2::QuoteMeta(Piece(rest.substr(0, length)));
      i += length;
    }
  }
  return expression;
}

}  // namespace

absl::StatusOr<Pattern> Pattern::Parse(absl::string_view text) {
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "the pattern is empty; write a buffer's name, or ** for all buffers");
  }
  if (text.size() > kMaxPatternBytes) {
    return Malformed(text, absl::StrCat("has ", text.size(), " bytes; at most ", kMaxPatternBytes,
                                        " are allowed"));
  }
  if (!IsPrintable(text)) {
    return Malformed(text, "holds control characters or malformed UTF-8; names hold neither");
  }
  if (!absl::StartsWith(text, kExpressionPrefix) && !absl::StrContains(text, '*')) {
    return Pattern(std::string(text), nullptr);
  }
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kExpressionBytes);
  std::string expression;
  absl::string_view given = text;
  if (absl::ConsumePrefix(&given, kExpressionPrefix)) {
    if (given.empty()) return Malformed(text, "has no expression after re:");
    expression = std::string(given);
  } else {
    options.set_encoding(re2::RE2::Options::EncodingLatin1);
    options.set_dot_nl(true);
    LOCKSTEP_ASSIGN_OR_RETURN(expression, ExpressionOfGlob(text));
  }
  auto compiled = std::make_shared<const re2::RE2>(expression, options);
  if (!compiled->ok()) {
    return Malformed(text, absl::StrCat("is not a valid RE2 expression: ", compiled->error()));
  }
  return Pattern(std::string(text), std::move(compiled));
}

Pattern::Pattern(std::string text, std::shared_ptr<const re2::RE2> expression)
    : text_(std::move(text)), expression_(std::move(expression)) {}

bool Pattern::is_expression() const { return absl::StartsWith(text_, kExpressionPrefix); }

int Pattern::size() const {
  return is_name() ? 1 : std::max(1, expression_->ProgramSize());
}

bool Pattern::Matches(absl::string_view name) const {
  if (is_name()) return name == text_;
  return re2::RE2::FullMatch(Piece(name), *expression_);
}

}  // namespace lockstep
