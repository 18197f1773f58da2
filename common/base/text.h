// Small helpers for the text of messages.
#ifndef LOCKSTEP_COMMON_BASE_TEXT_H_
#define LOCKSTEP_COMMON_BASE_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep {

// "w3, w7, w9 and 41 more": a list that stays short; "none" when empty.
std::string ListNames(const std::vector<std::string>& names, int limit = 5);

// Length of the longest prefix of `text` that is well-formed UTF-8 (Unicode 15,
// table 3-7): no overlong forms, surrogates or values above U+10FFFF.
std::size_t WellFormedPrefix(absl::string_view text);

// Whether `text` is well-formed UTF-8 without control characters (U+0000 to
// U+001F, U+007F to U+009F), so that it can be shown on one line.
bool IsPrintable(absl::string_view text);

// 'text' in quotes for a message: bytes that are not printable ASCII or UTF-8
// escaped, and cut after 200 bytes.
std::string Quoted(absl::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_TEXT_H_
