#include "common/base/text.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {

std::string ListNames(const std::vector<std::string>& names, int limit) {
  if (names.empty()) return "none";
  const auto shown = std::min<std::size_t>(names.size(), limit);
  std::string text =
      absl::StrJoin(names.begin(), names.begin() + shown, ", ");
  if (shown < names.size()) {
    absl::StrAppend(&text, " and ", names.size() - shown, " more");
  }
  return text;
}

namespace {

// Bytes of the character that `text` starts with; 0 if it is malformed.
std::size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  std::size_t bytes = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;  // of the second byte
  if (first >= 0xC2 && first <= 0xDF) {
    bytes = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    bytes = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    bytes = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  }
  if (bytes == 0 || text.size() < bytes) return 0;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < bytes; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return bytes;
}

}  // namespace

std::size_t WellFormedPrefix(absl::string_view text) {
  std::size_t length = 0;
  while (length < text.size()) {
    const std::size_t bytes = CharacterBytes(text.substr(length));
    if (bytes == 0) break;
    length += bytes;
  }
  return length;
}

bool IsPrintable(absl::string_view text) {
  if (WellFormedPrefix(text) != text.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7F) return false;
    // U+0080 to U+009F are C2 80 to C2 9F.
    if (byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0) return false;
  }
  return true;
}

namespace {

std::string Escaped(absl::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const absl::string_view character = text.substr(0, std::max<std::size_t>(CharacterBytes(text), 1));
    absl::StrAppend(&escaped, IsPrintable(character) ? absl::Utf8SafeCHexEscape(character)
                                                     : absl::CHexEscape(character));
    text.remove_prefix(character.size());
  }
  return escaped;
}

}  // namespace

std::string Quoted(absl::string_view text) {
  constexpr std::size_t kShown = 200;
  if (text.size() <= kShown) return absl::StrCat("'", Escaped(text), "'");
  absl::string_view shown = text.substr(0, kShown);
  // Do not cut through a character.
  const std::size_t whole = WellFormedPrefix(shown);
  if (whole + 4 > kShown) shown = shown.substr(0, whole);
  return absl::StrCat("'", Escaped(shown), "...'");
}

}  // namespace lockstep
