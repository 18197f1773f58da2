// A coordinator with certificates, and those who call it.
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "coordinator/server/server.h"
#include "coordinator/store/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "security/tls_files.h"
#include "security/token_list.h"
#include "tests/security/authority.h"
#include "worker/agent/grpc_link.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class TlsTest : public testing::Test {
 protected:
  TlsTest() {
    authority_.Make("server localhost 127.0.0.1");
    authority_.Make("operator alice");
    authority_.Make("viewer victor");
    authority_.Make("worker w0");
    auto server = CoordinatorServer::Start(
        {.listen = "127.0.0.1:0", .tls = authority_.Of("server")},
        std::make_unique<MemoryStore>(), &clock_);
    EXPECT_THAT(server, IsOk());
    server_ = *std::move(server);
  }

  absl::Status CreateJob(const TlsFiles& tls, const std::string& name) {
    auto client = Client::Connect(server_->address(), tls);
    if (!client.ok()) return client.status();
    v1::JobSpec spec;
    spec.set_name(name);
    spec.set_min_workers(1);
    return (*client)->CreateJob(spec, {.timeout = absl::Seconds(5)}).status();
  }
  absl::Status ListJobs(const TlsFiles& tls) {
    auto client = Client::Connect(server_->address(), tls);
    if (!client.ok()) return client.status();
    return (*client)->ListJobs({.timeout = absl::Seconds(5)}).status();
  }
  absl::Status Attend(const TlsFiles& tls) {
    Hello hello = {.job = "j", .worker = "w0", .incarnation = Incarnation(1), .transport = "shm"};
    hello.manifest.parameters = {{{"w", DType::kFloat32, {4}}}};
    return ConnectToCoordinator({.address = server_->address(),
                                 .tls = tls,
                                 .connect_timeout = absl::Seconds(5)},
                                hello)
        .status();
  }

  const RealClock clock_;
  const Authority authority_;
  std::unique_ptr<CoordinatorServer> server_;
};

TEST_F(TlsTest, EachRoleMayDoItsPart) {
  LOCKSTEP_EXPECT_OK(CreateJob(authority_.Of("alice"), "j"));
  LOCKSTEP_EXPECT_OK(ListJobs(authority_.Of("alice")));
  LOCKSTEP_EXPECT_OK(ListJobs(authority_.Of("victor")));
  LOCKSTEP_EXPECT_OK(Attend(authority_.Of("w0")));

  EXPECT_THAT(CreateJob(authority_.Of("victor"), "k"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("operator")));
  EXPECT_THAT(CreateJob(authority_.Of("w0"), "k"),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(ListJobs(authority_.Of("w0")), StatusIs(absl::StatusCode::kPermissionDenied));
  for (const char* other : {"alice", "victor"}) {
    EXPECT_THAT(Attend(authority_.Of(other)),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("worker")));
  }
}

TEST_F(TlsTest, OthersAreTurnedAway) {
  const auto unavailable = StatusIs(absl::StatusCode::kUnavailable);
  EXPECT_THAT(ListJobs({}), unavailable) << "without TLS";
  const Authority other;
  other.Make("operator mallory");
  EXPECT_THAT(ListJobs(other.Of("mallory")), unavailable) << "neither trusts the other";
  TlsFiles forged = other.Of("mallory");
  forged.authorities = authority_.Of("alice").authorities;
  EXPECT_THAT(ListJobs(forged), unavailable) << "signed by somebody else";
  // A server's certificate has no role, and is not for clients.
  EXPECT_FALSE(ListJobs(authority_.Of("server")).ok());
  LOCKSTEP_EXPECT_OK(ListJobs(authority_.Of("victor")));
}

TEST_F(TlsTest, AClientChecksTheHostItDials) {
  authority_.Make("server elsewhere.example.org");
  auto elsewhere = CoordinatorServer::Start(
      {.listen = "127.0.0.1:0", .tls = authority_.Of("server")}, std::make_unique<MemoryStore>(),
      &clock_);
  LOCKSTEP_ASSERT_OK(elsewhere);
  server_ = *std::move(elsewhere);
  EXPECT_THAT(ListJobs(authority_.Of("alice")), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(TlsTest, RenewedFilesAreTakenWithoutARestart) {
  // From now on only certificates of another authority are good, for both sides.
  const Authority renewed;
  renewed.Make("server localhost 127.0.0.1");
  renewed.Make("operator alice");
  for (const char* file : {"server.key", "server.pem", "ca.pem"}) {
    const std::filesystem::path from =
        std::filesystem::path(renewed.Of("server").key).parent_path() / file;
    const std::filesystem::path to =
        std::filesystem::path(authority_.Of("server").key).parent_path() / file;
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  }
  absl::Status listed = absl::UnavailableError("not asked yet");
  for (int i = 0; i < 200 && !listed.ok(); ++i) {
    listed = ListJobs(renewed.Of("alice"));
    if (!listed.ok()) absl::SleepFor(absl::Milliseconds(100));
  }
  LOCKSTEP_EXPECT_OK(listed);
}

class TokenTest : public TlsTest {
 protected:
  TokenTest() {
    Write("");
    auto server = CoordinatorServer::Start(
        {.listen = "127.0.0.1:0", .tls = authority_.Of("server"), .tokens = tokens_},
        std::make_unique<MemoryStore>(), &clock_);
    EXPECT_THAT(server, IsOk());
    server_ = *std::move(server);
  }
  void Write(const std::string& more) {
    LOCKSTEP_EXPECT_OK(WriteFile(
        tokens_, absl::StrCat(Sha256("op"), " oscar operator\n", Sha256("w"),
                              " w0 worker job=j worker=w0\n", Sha256("late"),
                              " late operator expires=2020-01-01T00:00:00Z\n", more)));
  }

  const std::string tokens_ = authority_.folder() + "/tokens";
};

TEST_F(TokenTest, ATokenStandsForACertificate) {
  LOCKSTEP_EXPECT_OK(CreateJob(authority_.WithToken("op\n"), "j"));
  LOCKSTEP_EXPECT_OK(Attend(authority_.WithToken("w")));
  LOCKSTEP_EXPECT_OK(CreateJob(authority_.Of("alice"), "k")) << "certificates are good as before";
  EXPECT_THAT(CreateJob(authority_.WithToken("w"), "l"),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(TokenTest, WithoutAGoodOneNobodyIsServed) {
  const auto unauthenticated = [](const char* why) {
    return StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr(why));
  };
  EXPECT_THAT(ListJobs(authority_.WithToken("wrong")), unauthenticated("does not know"));
  EXPECT_THAT(ListJobs(authority_.WithToken("late")), unauthenticated("late expired at 2020"));
  TlsFiles both = authority_.Of("alice");
  both.token = authority_.WithToken("wrong").token;
  EXPECT_THAT(ListJobs(both), unauthenticated("does not know")) << "a token is not passed over";
}

TEST_F(TokenTest, TokensThatAreAddedOrTakenAwayNeedNoRestart) {
  const TlsFiles renewed = authority_.WithToken("new");
  EXPECT_FALSE(ListJobs(renewed).ok());
  Write(Sha256("new") + " nora viewer\n");
  absl::Status listed = absl::UnavailableError("not asked yet");
  for (int i = 0; i < 100 && !listed.ok(); ++i) {
    listed = ListJobs(renewed);
    if (!listed.ok()) absl::SleepFor(absl::Milliseconds(100));
  }
  LOCKSTEP_EXPECT_OK(listed);
}

TEST_F(TokenTest, ARevisionIsOfTheCallerWhateverItSays) {
  LOCKSTEP_ASSERT_OK(CreateJob(authority_.WithToken("op"), "j"));
  const auto client = Client::Connect(server_->address(), authority_.WithToken("op"));
  LOCKSTEP_ASSERT_OK(client);
  v1::UpdateSyncPolicyRequest request;
  request.set_job("j");
  request.set_author("somebody else");
  request.mutable_policy()->set_broadcast_buffers(false);
  const auto revision = (*client)->UpdateSyncPolicy(request);
  LOCKSTEP_ASSERT_OK(revision);
  EXPECT_EQ(revision->author(), "oscar");
}

TEST(Tokens, TakeTls) {
  const RealClock clock;
  EXPECT_THAT(CoordinatorServer::Start({.listen = "127.0.0.1:0", .tokens = "/t"},
                                       std::make_unique<MemoryStore>(), &clock),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("TLS")));
}

TEST(TlsFiles, ThoseThatAreNeededAreGivenAndCanBeRead) {
  LOCKSTEP_EXPECT_OK(TlsFiles().ValidateForServer());
  LOCKSTEP_EXPECT_OK(TlsFiles().ValidateForClient());
  EXPECT_THAT((TlsFiles{.certificate = "/c"}).ValidateForServer(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/c")));
  EXPECT_THAT((TlsFiles{.key = "/k"}).ValidateForClient(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("certificate")));
  EXPECT_THAT((TlsFiles{.token = "/t"}).ValidateForClient(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/t")));
  const Authority authority;
  TlsFiles files = authority.WithToken("t");
  files.authorities = "";
  EXPECT_THAT(files.ValidateForClient(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("authorities")));
  EXPECT_THAT(files.ValidateForServer(), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lockstep
