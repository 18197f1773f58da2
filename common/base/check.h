// LOCKSTEP_CHECK: the state is corrupt, stop. Stays on in release builds. Not
// for bad input, which is an absl::Status.
#ifndef LOCKSTEP_COMMON_BASE_CHECK_H_
#define LOCKSTEP_COMMON_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define LOCKSTEP_CHECK(condition)                                         \
  do {                                                                    \
    if (!(condition)) {                                                   \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, \
                   #condition);                                           \
      std::abort();                                                       \
    }                                                                     \
  } while (false)

#endif  // LOCKSTEP_COMMON_BASE_CHECK_H_
