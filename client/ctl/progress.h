// How far a control entry came, and what a job does, as lines for people.
//
// Pure; thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_PROGRESS_H_
#define LOCKSTEP_CLIENT_CTL_PROGRESS_H_

#include <cstdint>
#include <string>

#include "client/ctl/style.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep {

struct EntryProgress {
  bool is_done = false;
  std::string waiting;  // "waiting for 1 of 4 workers: w2"; empty when done
};
EntryProgress ProgressOf(const v1::WatchJobResponse& state, std::int64_t log_number);

// "running  epoch 3  step 120  policy 2  workers 4  loss 0.25"
std::string WatchLine(const v1::WatchJobResponse& state, Color color = Color::kOff);

// "running" of STATE_RUNNING.
std::string StateName(v1::Job::State state);
std::string StateName(v1::Worker::State state);
std::string StateName(v1::SyncPolicyRevision::State state);

Style StyleOf(v1::Job::State state);
Style StyleOf(v1::Worker::State state);
Style StyleOf(v1::SyncPolicyRevision::State state);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_PROGRESS_H_
