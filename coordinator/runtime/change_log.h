// ChangeLog: what the coordinator did, as log lines for people.
//
// One line per epoch formed, started and ended, per decision, and per worker
// that comes, falls silent or goes. Nothing per heartbeat. Used by one thread.
#ifndef LOCKSTEP_COORDINATOR_RUNTIME_CHANGE_LOG_H_
#define LOCKSTEP_COORDINATOR_RUNTIME_CHANGE_LOG_H_

#include <functional>
#include <map>
#include <string>

#include "common/base/log.h"
#include "coordinator/core/events.h"
#include "coordinator/core/state.h"

namespace lockstep {

class ChangeLog {
 public:
  using Write = std::function<void(LogLevel, const std::string&, const LogFields&)>;
  explicit ChangeLog(Write write) : write_(std::move(write)) {}

  // A record that is durable now.
  void OnRecord(const Record& record);
  // A job that may have changed; null: it is gone.
  void OnJob(const std::string& name, const JobState* job);

 private:
  Write write_;
  // By job and worker, as last written.
  std::map<std::string, std::map<std::string, WorkerStage>> stages_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RUNTIME_CHANGE_LOG_H_
