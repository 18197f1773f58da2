// Metrics of one worker, as Prometheus reads them. Pure; any thread.
//
// The coordinator's are coordinator/web/cluster_metrics.h; docs/metrics.md lists both.
#ifndef LOCKSTEP_WORKER_TRAINER_TRAINING_METRICS_H_
#define LOCKSTEP_WORKER_TRAINER_TRAINING_METRICS_H_

#include <optional>
#include <string>

#include "worker/trainer/monitor.h"

namespace lockstep {

// In Prometheus' text format. No status: it is in no epoch; times alone are told.
std::string TrainingMetricsText(const std::string& job, const std::string& worker,
                                const std::optional<TrainingStatus>& status,
                                const StepTimes::Totals& times);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_TRAINING_METRICS_H_
