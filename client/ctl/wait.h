// Waits for what a control entry brings about.
#ifndef LOCKSTEP_CLIENT_CTL_WAIT_H_
#define LOCKSTEP_CLIENT_CTL_WAIT_H_

#include <cstdint>
#include <string>

#include "client/ctl/context.h"

namespace lockstep {

// Until it took effect on all members. Says on standard error who is missing, whenever
// that changes. kWaitTimedOut after context.wait().
ExitCode AwaitEntry(Context& context, const std::string& job, std::int64_t log_number);

// The same until the worker is no member and does not wait to be one.
ExitCode AwaitAbsence(Context& context, const std::string& job, const std::string& worker);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_WAIT_H_
