// A job as one screen of text, for `job watch`. Pure; thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_WATCH_TABLE_H_
#define LOCKSTEP_CLIENT_CTL_WATCH_TABLE_H_

#include <string>

#include "absl/time/time.h"
#include "client/ctl/step_rates.h"
#include "client/ctl/style.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep {

// WatchLine(), then a row per worker: members by rank, then the others by name. At most
// `max_lines` lines, but at least 4: the last one tells how many workers have no
// room.
std::string RenderWatch(const v1::WatchJobResponse& state, const StepRates& rates, absl::Time now,
                        int max_lines, Color color);

// What moves a terminal's cursor from behind `frame` to its beginning and clears from there on.
std::string RewindOver(const std::string& frame);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_WATCH_TABLE_H_
