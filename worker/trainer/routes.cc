#include "worker/trainer/routes.h"

#include "metrics/families.h"
#include "worker/trainer/training_metrics.h"

namespace lockstep {

std::vector<HttpRoute> WorkerRoutes(const std::string& job, const std::string& worker,
                                    const TrainingMonitor* monitor) {
  return {
      {.path = "/metrics",
       .handler =
           [=](const HttpRequest&) {
             return HttpResponse{.type = kMetricsType,
                                 .body = TrainingMetricsText(job, worker, monitor->status(),
                                                             monitor->times().totals())};
           }},
      {.path = "/livez",
       .access = HttpAccess::kAnybody,
       .handler = [](const HttpRequest&) { return HttpResponse{.body = "ok\n"}; }},
      {.path = "/readyz",
       .access = HttpAccess::kAnybody,
       .handler =
           [monitor](const HttpRequest&) {
             if (monitor->status().has_value()) return HttpResponse{.body = "ok\n"};
             return HttpResponse{.status = 503, .body = "this worker is in no epoch\n"};
           }},
  };
}

}  // namespace lockstep
