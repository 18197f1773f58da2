// The worker program's command line.
#ifndef LOCKSTEP_WORKER_TRAINER_FLAGS_H_
#define LOCKSTEP_WORKER_TRAINER_FLAGS_H_

#include <variant>

#include "common/base/log.h"
#include "http/http_server.h"
#include "worker/trainer/training.h"

namespace lockstep {

struct WorkerFlags {
  TrainingOptions training;
  HttpOptions http;  // nothing to listen on: none
  LogFormat log_format = LogFormat::kText;
  bool verbose = false;
};

// The flags, checked; or the exit code if there is nothing to run: 0 after
// --help, 2 after a mistake, which it has explained on standard error.
std::variant<WorkerFlags, int> ParseFlags(int argc, char** argv);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_FLAGS_H_
