// Metrics of the coordinator, as Prometheus reads them. Pure; any thread.
//
// deploy/prometheus has alert rules and a dashboard over them; docs/metrics.md lists them.
#ifndef LOCKSTEP_COORDINATOR_WEB_CLUSTER_METRICS_H_
#define LOCKSTEP_COORDINATOR_WEB_CLUSTER_METRICS_H_

#include <vector>

#include "common/base/mono_time.h"
#include "coordinator/core/state.h"
#include "coordinator/store/metered_store.h"
#include "metrics/families.h"

namespace lockstep {

// `now`: by the clock that the state's times are of.
std::vector<MetricFamily> ClusterMetrics(const ClusterState& state, const StoreMeter& meter,
                                         MonoTime now);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_WEB_CLUSTER_METRICS_H_
