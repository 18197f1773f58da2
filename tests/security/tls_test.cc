// A coordinator with certificates, and those who call it.
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "common/base/status_matchers.h"
#include "coordinator/server/server.h"
#include "coordinator/store/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "security/tls_files.h"
#include "worker/agent/grpc_link.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Certificates of an authority of its own.
class Authority {
 public:
  Authority() {
    std::string folder = absl::StrCat(testing::TempDir(), "/XXXXXX");
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }

  // The arguments of dev_ca.sh. `environment`: "DAYS=1".
  void Make(const std::string& arguments, const std::string& environment = "") const {
    const std::string command =
        absl::StrCat(environment, " tools/dev_ca.sh ", folder_, " ", arguments);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  TlsFiles Of(const std::string& name) const {
    return {.certificate = absl::StrCat(folder_, "/", name, ".pem"),
            .key = absl::StrCat(folder_, "/", name, ".key"),
            .authorities = folder_ + "/ca.pem"};
  }

 private:
  std::string folder_;
};

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

TEST(TlsFiles, AllOrNoneAreGivenAndCanBeRead) {
  LOCKSTEP_EXPECT_OK(TlsFiles().Validate());
  EXPECT_THAT((TlsFiles{.certificate = "/c"}).Validate(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/c")));
  EXPECT_THAT((TlsFiles{.key = "/k"}).Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("certificate")));
}

}  // namespace
}  // namespace lockstep
