#include "coordinator/web/routes.h"

#include <chrono>
#include <future>
#include <string>
#include <utility>

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
  const nlohmann::json json = {{"name", request.caller.name}, {"roles", roles}};
  return {.type = "application/json",
          .body = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

HttpResponse Metrics(const WebOptions& options) {
  // On the coordinator's thread, to be of one moment; it outlives this call if it is late.
  auto text = std::make_shared<std::promise<std::string>>();
  std::future<std::string> made = text->get_future();
  options.coordinator->Read([text, meter = options.meter(), now = options.clock->Now()](
                                const ClusterState* state) {
    text->set_value(state == nullptr ? "" : MetricsText(*state, meter, now));
  });
  if (made.wait_for(kPatience) == std::future_status::ready) {
    std::string body = made.get();
    if (!body.empty()) {
      return {.type = kMetricsType, .body = std::move(body)};
    }
  }
  return {.status = 503, .body = "the coordinator is stopping or overloaded\n"};
}

HttpResponse Health(const absl::Status& health) {
  if (health.ok()) return {.body = "ok\n"};
  return {.status = 503, .body = absl::StrCat(health.message(), "\n")};
}

// Whether the coordinator's thread answers.
absl::Status Readiness(Coordinator* coordinator) {
  auto answered = std::make_shared<std::promise<bool>>();
  std::future<bool> answer = answered->get_future();
  coordinator->Read([answered](const ClusterState* state) { answered->set_value(state != nullptr); });
  if (answer.wait_for(kPatience) != std::future_status::ready) {
    return absl::DeadlineExceededError("the coordinator's thread does not answer");
  }
  return answer.get() ? absl::OkStatus()
                      : absl::UnavailableError("the coordinator is stopping or overloaded");
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
