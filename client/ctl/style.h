// Colours on terminals: what is well, what is on its way, what needs a look. Pure;
// thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_STYLE_H_
#define LOCKSTEP_CLIENT_CTL_STYLE_H_

#include <string>

namespace lockstep {

enum class Color { kOff, kOn };
enum class Style { kPlain, kGood, kPending, kBad };

// The text between the terminal's codes for the style; unchanged if plain, empty or off.
std::string Paint(const std::string& text, Style style, Color color);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_STYLE_H_
