// Small helpers for the text of messages.
#ifndef LOCKSTEP_COMMON_BASE_TEXT_H_
#define LOCKSTEP_COMMON_BASE_TEXT_H_

#include <string>
#include <vector>

namespace lockstep {

// "w3, w7, w9 and 41 more": a list that stays short; "none" when empty.
std::string ListNames(const std::vector<std::string>& names, int limit = 5);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_TEXT_H_
