// What the coordinator serves over HTTP: the web page, the API as JSON, metrics and health.
//
//   GET  /, /main.js, ...          the page and its files
//   POST /lockstep.v1.SERVICE/...  gateway.h
//   GET  /whoami                   {"name", "roles"} of the caller
//   GET  /metrics                  cluster_metrics.h
//   GET  /livez, /readyz           200 if the process is well; if it serves
//
// Thread-safe.
#ifndef LOCKSTEP_COORDINATOR_WEB_ROUTES_H_
#define LOCKSTEP_COORDINATOR_WEB_ROUTES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mono_time.h"
#include "coordinator/runtime/coordinator.h"
#include "coordinator/store/metered_store.h"
#include "grpcpp/grpcpp.h"
#include "http/router.h"

namespace lockstep {

struct WebOptions {
  Coordinator* coordinator = nullptr;      // outlives the routes, as the clock does
  const Clock* clock = nullptr;
  std::shared_ptr<grpc::Channel> channel;  // to the services, inside this process
  std::string key;                         // for calls of them by those who ask
  std::function<StoreMeter()> meter;
  bool is_open = false;         // without TLS: callers are not told apart
  bool takes_tokens = false;    // who has none yet may load the page, to type one
};

std::vector<HttpRoute> WebRoutes(const WebOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_WEB_ROUTES_H_
