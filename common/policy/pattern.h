// Pattern: one entry of an allow or ignore list, on full dotted buffer names.
//
//   bn1.running_mean     that name
//   *                    any characters within one component (no dot)
//   **                   any characters, across components
//   **.name              `name` at any depth, the top included: `**.` as a whole
//                        component stands for none, one or several components,
//                        also in the middle (a.**.b matches a.b)
//   re:EXPRESSION        an RE2 expression that must match the whole name
//
// Everything else stands for itself, `?` and `[` included.
//
// Pure; thread-safe after construction.
#ifndef LOCKSTEP_COMMON_POLICY_PATTERN_H_
#define LOCKSTEP_COMMON_POLICY_PATTERN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace re2 {
class RE2;
}

namespace lockstep {

inline constexpr int kMaxPatternBytes = 1024;

class Pattern {
 public:
  // Errors: InvalidArgument: empty, too long, not printable UTF-8, three stars
  //   in a row, or not a valid expression (also one that needs too much memory);
  //   the message quotes the text and says where it goes wrong.
  static absl::StatusOr<Pattern> Parse(absl::string_view text);

  bool Matches(absl::string_view name) const;
  const std::string& text() const { return text_; }
  // Whether it is a plain name, which only that name matches.
  bool is_name() const { return expression_ == nullptr; }
  bool is_expression() const;  // re:
  // What it costs to compile, to keep and to match: in instructions; 1 for a name.
  int size() const;

 private:
  Pattern(std::string text, std::shared_ptr<const re2::RE2> expression);

  std::string text_;
  std::shared_ptr<const re2::RE2> expression_;  // null: a plain name
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_PATTERN_H_
