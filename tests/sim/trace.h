// Trace: what happened, one readable line for each event, and a digest of all of them.
// Thread-compatible.
#ifndef LOCKSTEP_TESTS_SIM_TRACE_H_
#define LOCKSTEP_TESTS_SIM_TRACE_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "tests/sim/scheduler.h"

namespace lockstep::sim {

class Trace final {
 public:
  // `live`: each line is printed at once too, which a run that dies needs.
  Trace(const Scheduler* scheduler, bool live) : scheduler_(scheduler), live_(live) {}

  // "12.345678s w2 step 7 committed".
  template <typename... Parts>
  void Say(const Parts&... parts) {
    const std::int64_t micros = scheduler_->now().nanos() / 1000;
    std::string line = absl::StrFormat("%d.%06ds ", micros / 1'000'000, micros % 1'000'000);
    absl::StrAppend(&line, parts...);
    digester_.Add(absl::string_view(line));
    if (live_) absl::FPrintF(stderr, "  %s\n", line);
    lines_.push_back(std::move(line));
  }

  const std::vector<std::string>& lines() const { return lines_; }
  std::uint64_t digest() const { return digester_.Finish(); }

 private:
  const Scheduler* const scheduler_;
  const bool live_;
  std::vector<std::string> lines_;
  Digester digester_;
};

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_TRACE_H_
