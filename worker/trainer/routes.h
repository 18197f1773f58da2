// What a worker serves over HTTP: metrics and health.
//
//   GET /metrics   training_metrics.h
//   GET /livez     200: the process answers; whether it makes steps the coordinator watches
//   GET /readyz    200 from when it has joined an epoch until it leaves, recoveries included
//
// Thread-safe.
#ifndef LOCKSTEP_WORKER_TRAINER_ROUTES_H_
#define LOCKSTEP_WORKER_TRAINER_ROUTES_H_

#include <string>
#include <vector>

#include "http/router.h"
#include "worker/trainer/monitor.h"

namespace lockstep {

// `monitor` outlives the routes.
std::vector<HttpRoute> WorkerRoutes(const std::string& job, const std::string& worker,
                                    const TrainingMonitor* monitor);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_ROUTES_H_
