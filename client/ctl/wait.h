// Waits until a control entry took effect on all members of a job.
#ifndef LOCKSTEP_CLIENT_CTL_WAIT_H_
#define LOCKSTEP_CLIENT_CTL_WAIT_H_

#include <cstdint>
#include <string>

#include "client/ctl/context.h"

namespace lockstep {

// Says on standard error who is missing, whenever that changes. kWaitTimedOut
// after context.wait().
ExitCode AwaitEntry(Context& context, const std::string& job, std::int64_t log_number);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_WAIT_H_
