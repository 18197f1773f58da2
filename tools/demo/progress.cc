#include "tools/demo/progress.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace lockstep {

std::string ToLine(const Progress& progress) {
  return absl::StrFormat(
      "step %d/%d  loss %.4f  %.0f images/s  policy revision %d  %.1f KiB synchronised",
      progress.step, progress.steps, progress.loss, progress.images_per_second, progress.revision,
      static_cast<double>(progress.synced_bytes) / 1024);
}

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressLine::Show(const Progress& progress) {
  const absl::Time now = absl::Now();
  const std::string line = ToLine(progress);
  if (line == last_line_) return;
  if (!terminal_ && now - last_shown_ < absl::Seconds(5)) return;
  last_line_ = line;
  last_shown_ = now;
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
  std::fflush(stderr);
  open_ = terminal_;
}

void ProgressLine::Finish() {
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

}  // namespace lockstep
