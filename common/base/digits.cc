#include "common/base/digits.h"

#include <array>
#include <charconv>

namespace lockstep {

std::string Digits(double value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr);
}

}  // namespace lockstep
