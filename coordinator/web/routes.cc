#include "coordinator/web/routes.h"

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/web/cluster_metrics.h"
#include "coordinator/web/gateway.h"
#include "coordinator/web/page_files.h"
#include "metrics/families.h"
#include "nlohmann/json.hpp"
#include "security/roles.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kPatience(10);

std::string TypeOf(absl::string_view file) {
  if (absl::EndsWith(file, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(file, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(file, ".js")) return "text/javascript; charset=utf-8";
  return "text/plain; charset=utf-8";
}

HttpResponse WhoAmI(const HttpRequest& request, bool is_open) {
  nlohmann::json roles = nlohmann::json::array();
  for (const Role role : {Role::kViewer, Role::kWorker, Role::kOperator}) {
    if (is_open || request.caller.roles.contains(role)) roles.push_back(RoleName(role));
  }
  return JsonResponse(200, {{"name", request.caller.name}, {"roles", roles}});
}

HttpResponse Health(const absl::Status& health) {
  if (health.ok()) return {.body = "ok\n"};
  return {.status = 503, .body = absl::StrCat(health.message(), "\n")};
}

// What `look` makes of the state, on the coordinator's thread. Errors: DeadlineExceeded,
// Unavailable.
template <typename Answer>
absl::StatusOr<Answer> Ask(Coordinator* coordinator,
                           std::function<Answer(const ClusterState&)> look) {
  // It outlives this call if the answer is late.
  auto told = std::make_shared<std::promise<std::optional<Answer>>>();
  std::future<std::optional<Answer>> answer = told->get_future();
  coordinator->Read([told, look = std::move(look)](const ClusterState* state) {
    told->set_value(state == nullptr ? std::nullopt : std::optional<Answer>(look(*state)));
  });
  if (answer.wait_for(kPatience) != std::future_status::ready) {
    return absl::DeadlineExceededError("the coordinator's thread does not answer");
  }
  std::optional<Answer> got = answer.get();
  if (!got) return absl::UnavailableError("the coordinator is stopping or overloaded");
  return *std::move(got);
}

HttpResponse Metrics(const WebOptions& options) {
  using Families = std::vector<MetricFamily>;
  absl::StatusOr<Families> families = Ask<Families>(
      options.coordinator, [meter = options.meter(), now = options.clock->Now()](
                               const ClusterState& state) {
        return ClusterMetrics(state, meter, now);
      });
  if (!families.ok()) return Health(families.status());
  // Text of thousands of workers takes its time, and leases end while the coordinator's thread is
  // busy: it is made here.
  return {.type = kMetricsType, .body = TextOf(*std::move(families))};
}

// Whether the coordinator's thread answers.
absl::Status Readiness(Coordinator* coordinator) {
  return Ask<bool>(coordinator, [](const ClusterState&) { return true; }).status();
}

}  // namespace

std::vector<HttpRoute> WebRoutes(const WebOptions& options) {
  std::vector<HttpRoute> routes;
  const HttpAccess page = options.takes_tokens ? HttpAccess::kAnybody : HttpAccess::kViewer;
  for (const auto& [name, text] : PageFiles()) {
    routes.push_back(
        {.path = name == "index.html" ? "/" : absl::StrCat("/", name),
         .access = page,
         .handler = [type = TypeOf(name), body = std::string(text)](const HttpRequest&) {
           return HttpResponse{.type = type, .body = body};
         }});
  }
  const auto gateway = std::make_shared<const Gateway>(options.channel, options.key, options.is_open);
  routes.push_back({.method = "POST",
                    .path = "/lockstep.v1.*",
                    .access = HttpAccess::kHandlers,
                    .handler = [gateway](const HttpRequest& request) {
                      return gateway->Call(request);
                    }});
  routes.push_back({.path = "/whoami",
                    .access = HttpAccess::kHandlers,
                    .handler = [is_open = options.is_open](const HttpRequest& request) {
                      return WhoAmI(request, is_open);
                    }});
  routes.push_back(
      {.path = "/metrics", .handler = [options](const HttpRequest&) { return Metrics(options); }});
  routes.push_back({.path = "/livez",
                    .access = HttpAccess::kAnybody,
                    .handler = [coordinator = options.coordinator](const HttpRequest&) {
                      return Health(coordinator->health());
                    }});
  routes.push_back({.path = "/readyz",
                    .access = HttpAccess::kAnybody,
                    .handler = [coordinator = options.coordinator](const HttpRequest&) {
                      return Health(Readiness(coordinator));
                    }});
  return routes;
}

}  // namespace lockstep
