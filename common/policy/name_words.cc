#include "common/policy/name_words.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace lockstep {
namespace {

// "ReplayBuffer2_old" -> replay, buffer, old. "HTTPQueue" -> http, queue.
std::vector<std::string> PartsOf(absl::string_view component) {
  std::vector<std::string> parts;
  bool is_new = true;
  for (std::size_t i = 0; i < component.size(); ++i) {
    const char c = component[i];
    if (!absl::ascii_isalnum(c)) {
      is_new = true;
      continue;
    }
    if (i > 0 && absl::ascii_isupper(c)) {
      const bool is_acronym = absl::ascii_isupper(component[i - 1]);
      const bool ends_acronym = i + 1 < component.size() && absl::ascii_islower(component[i + 1]);
      if (!is_acronym || ends_acronym) is_new = true;
    }
    if (is_new) parts.emplace_back();
    is_new = false;
    parts.back() += absl::ascii_tolower(c);
  }
  for (std::string& part : parts) {
    while (!part.empty() && absl::ascii_isdigit(part.back())) part.pop_back();
  }
  return parts;
}

// Parts together are compared, so that "RoPE" is the word rope.
bool Holds(const std::vector<std::string>& parts, const std::string& word) {
  const std::string plural = word + "s";
  for (std::size_t first = 0; first < parts.size(); ++first) {
    std::string run;
    for (std::size_t i = first; i < parts.size() && run.size() < plural.size(); ++i) {
      run += parts[i];
      if (run == word || run == plural) return true;
    }
  }
  return false;
}

}  // namespace

bool HoldsAWord(absl::string_view name, std::span<const absl::string_view> words) {
  for (const absl::string_view component : absl::StrSplit(name, '.')) {
    const std::vector<std::string> parts = PartsOf(component);
    const bool holds = std::any_of(words.begin(), words.end(), [&](absl::string_view word) {
      return Holds(parts, absl::StrReplaceAll(word, {{"_", ""}}));
    });
    if (holds) return true;
  }
  return false;
}

}  // namespace lockstep
