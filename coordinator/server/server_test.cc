#include "coordinator/server/server.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "coordinator/store/memory_store.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

absl::StatusOr<std::unique_ptr<CoordinatorServer>> StartOn(const std::string& listen,
                                                           const Clock* clock) {
  ServerOptions options;
  options.listen = listen;
  return CoordinatorServer::Start(options, std::make_unique<MemoryStore>(), clock);
}

// One request and one response of a method whose messages are given as bytes.
std::string CallRaw(const std::string& address, const std::string& method,
                    const std::string& request) {
  grpc::ChannelArguments settings;
  settings.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), settings));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  EXPECT_TRUE(next());
  const grpc::Slice slice(request);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  EXPECT_TRUE(next());
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  EXPECT_TRUE(next());
  std::vector<grpc::Slice> slices;
  std::string text;
  if (response.Dump(&slices).ok()) {
    for (const grpc::Slice& part : slices) {
      text.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
  }
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  queue.Shutdown();
  while (next()) {
  }
  return text;
}

TEST(CoordinatorServer, TellsThePortThatWasBound) {
  const RealClock clock;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto server, StartOn("127.0.0.1:0", &clock));
  EXPECT_THAT(server->address(), testing::MatchesRegex("127.0.0.1:[1-9][0-9]+"));
}

TEST(CoordinatorServer, ATakenPortIsAnError) {
  const RealClock clock;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto server, StartOn("127.0.0.1:0", &clock));
  EXPECT_THAT(StartOn(server->address(), &clock),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       testing::AllOf(HasSubstr(server->address()), HasSubstr("taken"))));
}

TEST(CoordinatorServer, AListenAddressNeedsHostAndPort) {
  const RealClock clock;
  for (const std::string listen : {"", "7070", ":7070", "127.0.0.1:", "127.0.0.1:70700", "a:b"}) {
    EXPECT_THAT(StartOn(listen, &clock), StatusIs(absl::StatusCode::kInvalidArgument)) << listen;
  }
}

// Without a descriptor a client that uses reflection lists a service in vain.
TEST(CoordinatorServer, KnowsTheDescriptorOfEachServiceItLists) {
  for (const char* service : {"grpc.health.v1.Health", "lockstep.v1.JobService",
                              "lockstep.v1.MembershipService", "lockstep.v1.SyncPolicyService"}) {
    EXPECT_NE(google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service),
              nullptr)
        << service;
  }
}

TEST(CoordinatorServer, AnswersHealthChecks) {
  const RealClock clock;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto server, StartOn("127.0.0.1:0", &clock));
  // HealthCheckResponse{status: SERVING}.
  EXPECT_EQ(CallRaw(server->address(), "/grpc.health.v1.Health/Check", ""),
            std::string("\x08\x01"));
}

TEST(CoordinatorServer, TellsItsServicesByReflection) {
  const RealClock clock;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto server, StartOn("127.0.0.1:0", &clock));
  // ServerReflectionRequest{list_services: ""}.
  const std::string services = CallRaw(
      server->address(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      std::string("\x3a\x00", 2));
  for (const char* name : {"lockstep.v1.JobService", "lockstep.v1.SyncPolicyService",
                           "lockstep.v1.MembershipService"}) {
    EXPECT_THAT(services, HasSubstr(name));
  }
}

TEST(CoordinatorServer, MayBeStoppedTwiceAndThenAwaited) {
  const RealClock clock;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto server, StartOn("127.0.0.1:0", &clock));
  server->RequestStop();
  server->AwaitEnd();
  server->Stop();
  server->Stop();
  EXPECT_THAT(server->health(), IsOk());
}

}  // namespace
}  // namespace lockstep
