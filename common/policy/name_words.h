// Name words: whether a buffer's name holds a word such as "queue" or
// "memory_bank" by itself, and not as letters inside of another word.
//
// Pure functions; thread-safe.
#ifndef LOCKSTEP_COMMON_POLICY_NAME_WORDS_H_
#define LOCKSTEP_COMMON_POLICY_NAME_WORDS_H_

#include <span>

#include "absl/strings/string_view.h"

namespace lockstep {

// Whether a component of the name (components end at '.') holds one of `words`, of
// which each is in lower case, with '_' between its parts. A component's own parts
// end where its case changes and at what is no letter or digit; a word is one part
// or several that follow each other: "memory_bank" is in "head.memoryBank2" and in
// "MemoryBank_old". Case, digits at the end of a part and an s at the end of the
// word do not count.
bool HoldsAWord(absl::string_view name, std::span<const absl::string_view> words);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_NAME_WORDS_H_
