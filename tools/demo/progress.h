// The demo's progress line on standard error: rewritten in place on a terminal,
// else a new line now and then. Used by one thread.
#ifndef LOCKSTEP_TOOLS_DEMO_PROGRESS_H_
#define LOCKSTEP_TOOLS_DEMO_PROGRESS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace lockstep {

struct Progress {
  std::int64_t step = 0;
  std::int64_t steps = 0;  // of the whole run
  double loss = 0;
  double images_per_second = 0;  // all ranks
  std::int64_t revision = 0;     // in force
  std::int64_t synced_bytes = 0;  // of buffers, by one rank
};

// "step 120/469  loss 0.1432  5,210 images/s  policy revision 2  64 KiB synchronised"
std::string ToLine(const Progress& progress);

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { Finish(); }

  void Show(const Progress& progress);
  // Other output follows.
  void Finish();

 private:
  bool terminal_;
  bool open_ = false;  // a line without its end is on the terminal
  absl::Time last_shown_ = absl::InfinitePast();
  std::string last_line_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DEMO_PROGRESS_H_
