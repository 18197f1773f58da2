#include "http/router.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using testing::HasSubstr;

HttpResponse Echo(const HttpRequest& request) {
  return {.body = request.caller.name + ":" + request.body};
}

const std::vector<HttpRoute>& Routes() {
  static const auto* const routes = new std::vector<HttpRoute>{
      {.path = "/livez", .access = HttpAccess::kAnybody, .handler = Echo},
      {.path = "/metrics", .handler = Echo},
      {.method = "POST",
       .path = "/lockstep.v1.JobService/*",
       .access = HttpAccess::kHandlers,
       .handler = Echo},
  };
  return *routes;
}

const Caller kViewer = {.name = "v", .roles = {Role::kViewer}};
const Caller kWorker = {.name = "w", .roles = {Role::kWorker}};
const absl::Status kNobody = absl::UnauthenticatedError("who are you");

HttpRequest Get(const std::string& path) { return {.method = "GET", .path = path}; }
HttpRequest Post(const std::string& path, const std::string& type = "application/json") {
  return {.method = "POST", .path = path, .content_type = type, .body = "{}", .host = "here:1"};
}
int StatusOf(HttpRequest request, const absl::StatusOr<Caller>& caller, bool is_open = false) {
  return Respond(Routes(), std::move(request), caller, is_open).status;
}

TEST(Respond, AsksForTheRoleOfARoute) {
  EXPECT_EQ(StatusOf(Get("/livez"), kNobody), 200);
  EXPECT_EQ(StatusOf(Get("/metrics"), kNobody), 401);
  EXPECT_EQ(StatusOf(Get("/metrics"), kWorker), 403);
  EXPECT_EQ(StatusOf(Get("/metrics"), kViewer), 200);
  EXPECT_EQ(StatusOf(Post("/lockstep.v1.JobService/GetJob"), kNobody), 401);
  EXPECT_EQ(StatusOf(Post("/lockstep.v1.JobService/GetJob"), kWorker), 200);
}

TEST(Respond, IsOpenToAllWithoutTls) {
  EXPECT_EQ(StatusOf(Get("/metrics"), Caller(), /*is_open=*/true), 200);
}

TEST(Respond, TellsHandlersWhoAsks) {
  EXPECT_EQ(Respond(Routes(), Post("/lockstep.v1.JobService/GetJob"), kViewer, false).body, "v:{}");
}

TEST(Respond, KnowsPathsAndMethods) {
  EXPECT_EQ(StatusOf(Get("/"), kViewer), 404);
  EXPECT_EQ(StatusOf(Get("/livez/"), kViewer), 404);
  EXPECT_EQ(StatusOf(Get("/lockstep.v1.JobService/GetJob"), kViewer), 405);
  EXPECT_EQ(StatusOf(Post("/livez"), kViewer), 405);
  EXPECT_EQ(StatusOf({.method = "DELETE", .path = "/livez"}, kViewer), 405);
}

TEST(Respond, TakesNothingFromPagesOfOtherSites) {
  HttpRequest request = Post("/lockstep.v1.JobService/GetJob");
  for (const char* origin : {"https://here:1", "http://here:1"}) {
    request.origin = origin;
    EXPECT_EQ(StatusOf(request, kViewer), 200) << origin;
  }
  for (const char* origin : {"https://evil.example", "null", "https://here", "https://here:1.evil"}) {
    request.origin = origin;
    EXPECT_EQ(StatusOf(request, kViewer), 403) << origin;
  }
}

// A form of another site can post text, but no JSON.
TEST(Respond, TakesJsonAlone) {
  const std::string path = "/lockstep.v1.JobService/GetJob";
  EXPECT_EQ(StatusOf(Post(path, "application/json; charset=utf-8"), kViewer), 200);
  for (const char* type : {"", "text/plain", "application/jsonx", "application/x-www-form-urlencoded"}) {
    EXPECT_EQ(StatusOf(Post(path, type), kViewer), 415) << type;
  }
}

TEST(ErrorResponse, NamesTheCode) {
  const HttpResponse response = ErrorResponse(absl::AbortedError("stale \xff etag"));
  EXPECT_EQ(response.status, 409);
  const auto json = nlohmann::json::parse(response.body);
  EXPECT_EQ(json["code"], "aborted");
  EXPECT_THAT(json["message"].get<std::string>(), HasSubstr("stale"));
}

TEST(IsLoopbackHost, LooksAtTheWholeName) {
  for (const char* host : {"localhost", "localhost:7071", "127.0.0.1", "127.1.2.3:80", "[::1]",
                           "[::1]:7071"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
  for (const char* host : {"", "10.0.0.1", "localhost.evil.example", "127.evil.example:80",
                           "evil.example:127", "[::2]:7071"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

}  // namespace
}  // namespace lockstep
