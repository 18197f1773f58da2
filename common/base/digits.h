// Digits: the text of a number with all its digits. Pure functions.
#ifndef LOCKSTEP_COMMON_BASE_DIGITS_H_
#define LOCKSTEP_COMMON_BASE_DIGITS_H_

#include <string>

namespace lockstep {

// The shortest text that reads back as the same number: "0.1", "1e-08", "nan".
std::string Digits(double value);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_DIGITS_H_
