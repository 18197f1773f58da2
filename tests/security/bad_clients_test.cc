// Clients that do not belong, or do not behave, are turned away with the right code, each while a
// job trains that must not notice.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "common/manifest/dtype.h"
#include "coordinator/server/server.h"
#include "coordinator/store/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "security/token_list.h"
#include "tests/security/authority.h"
#include "tests/security/raw_client.h"
#include "tools/local_cluster/local_cluster.h"
#include "tools/process/child_process.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

using enum absl::StatusCode;
using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int kWorkers = 2;

// A coordinator with TLS and tokens, bounds so small that a test can pass them, and a job "train"
// of two processes.
class Cluster {
 public:
  Cluster() {
    for (const char* who : {"server localhost 127.0.0.1", "operator alice", "viewer victor",
                            "worker anyone", "worker w0 job=train worker=w0",
                            "worker w1 job=train worker=w1", "worker bound job=other worker=b0",
                            "operator clerk job=other"}) {
      authority.Make(who);
    }
    LOCKSTEP_CHECK(WriteFile(tokens, TokenLines()).ok());
    ServerOptions options = {
        .listen = "127.0.0.1:0", .tls = authority.Of("server"), .tokens = tokens};
    options.attend_limits.max_waiting_messages = 3;
    options.attend_limits.hello_timeout = absl::Seconds(1);
    options.attend_limits.end_timeout = absl::Seconds(1);
    options.attend_limits.messages = {.per_second = 100, .burst = 200};
    options.call_limits.calls = {.per_second = 50, .burst = 100};
    options.call_limits.watches = 5;
    options.call_limits.attending = 20;
    options.call_limits.hellos = {.per_second = 0.1, .burst = 5};
    auto started = CoordinatorServer::Start(options, std::make_unique<MemoryStore>(), &clock);
    EXPECT_THAT(started, IsOk());
    server = *std::move(started);
    client = *Client::Connect(server->address(), authority.Of("alice"));
    Create("train", kWorkers);
    Create("other", 2);
    Train();
  }

  std::string TokenLines(const std::string& more = "") const {
    return absl::StrCat(Sha256("viewer-token"), " vera viewer\n", Sha256("old-token"),
                        " otto operator expires=2020-01-01T00:00:00Z\n", more);
  }

  v1::Job job() const {
    absl::StatusOr<v1::Job> job = client->GetJob("train", {.timeout = absl::Seconds(10)});
    EXPECT_THAT(job, IsOk());
    return job.ok() ? *job : v1::Job();
  }
  // Waits until the job took steps behind `step`, or fails.
  void AwaitStepsAfter(std::int64_t step) const {
    const absl::Time give_up = absl::Now() + kPatience;
    while (job().step() <= step) {
      if (absl::Now() > give_up) FAIL() << "no step after " << step << "; " << job().DebugString();
      absl::SleepFor(absl::Milliseconds(50));
    }
  }

  const RealClock clock;
  const Authority authority;
  const std::string tokens = authority.folder() + "/tokens";
  std::unique_ptr<CoordinatorServer> server;
  std::unique_ptr<Client> client;
  std::vector<std::unique_ptr<ChildProcess>> workers;

 private:
  void Create(const std::string& name, int min_workers) {
    v1::JobSpec spec;
    spec.set_name(name);
    spec.set_min_workers(min_workers);
    spec.mutable_lease()->set_seconds(2);
    LOCKSTEP_EXPECT_OK(client->CreateJob(spec));
  }
  void Train() {
    const std::string program = *FindRunfile("lockstep/worker/trainer/worker");
    for (int i = 0; i < kWorkers; ++i) {
      const std::string name = absl::StrCat("w", i);
      const TlsFiles tls = authority.Of(name);
      auto worker = ChildProcess::Start(
          {.program = program,
           .arguments = {"--coordinator", server->address(), "--job", "train", "--name", name,
                         "--data", *FindMnist(), "--model", "mlp", "--epochs", "1000",
                         "--tls-certificate", tls.certificate, "--tls-key", tls.key,
                         "--tls-authorities", tls.authorities},
           .environment = {{"OMP_NUM_THREADS", "1"}},
           .output_file = absl::StrCat(testing::TempDir(), "/", name, ".log")});
      LOCKSTEP_CHECK(worker.ok());
      workers.push_back(*std::move(worker));
    }
    AwaitStepsAfter(0);
  }
};

struct BadClient {
  std::string name;
  absl::StatusCode code;
  std::function<absl::Status(Cluster&)> act;
};

void PrintTo(const BadClient& client, std::ostream* out) { *out << client.name; }

// ---- how they act ----

absl::Status Call(Cluster& cluster, const TlsFiles& tls, const std::string& method,
                  const google::protobuf::Message& request) {
  return RawClient(cluster.server->address(), tls)
      .Call("/lockstep.v1." + method, request.SerializeAsString());
}

absl::Status List(Cluster& cluster, const TlsFiles& tls) {
  return Call(cluster, tls, "JobService/ListJobs", v1::ListJobsRequest());
}

v1::DeleteJobRequest Deletion(const std::string& job) {
  v1::DeleteJobRequest request;
  request.set_job(job);
  return request;
}

v1::UpdateSyncPolicyRequest Update(const std::string& job) {
  v1::UpdateSyncPolicyRequest request;
  request.set_job(job);
  request.mutable_policy()->set_broadcast_buffers(false);
  return request;
}

v1::AttendRequest Hello(const std::string& worker, std::int64_t incarnation = 1,
                        const std::string& job = "other") {
  v1::AttendRequest request;
  v1::Hello& hello = *request.mutable_hello();
  hello.set_job(job);
  hello.set_worker(worker);
  hello.set_incarnation(incarnation);
  hello.set_transport("shm");
  v1::TensorSpec& weight = *hello.mutable_manifest()->add_parameters();
  weight.set_name("weight");
  weight.set_dtype(static_cast<int>(DType::kFloat32));
  weight.add_shape(4);
  return request;
}

v1::AttendRequest Heartbeat() {
  v1::AttendRequest request;
  request.mutable_heartbeat();
  return request;
}

// A Hello in which something of the manifest is spoilt.
absl::Status AttendWith(Cluster& cluster, const std::function<void(v1::Hello&)>& spoil) {
  v1::AttendRequest hello = Hello("spoilt");
  spoil(*hello.mutable_hello());
  return RawClient(cluster.server->address(), cluster.authority.Of("anyone")).Attend({hello});
}

absl::Status AttendAs(Cluster& cluster, const std::string& who,
                      const std::vector<v1::AttendRequest>& messages) {
  return RawClient(cluster.server->address(), cluster.authority.Of(who)).Attend(messages);
}

// Until one is refused; the last answer.
absl::Status Flood(Cluster& cluster, const std::string& who) {
  RawClient client(cluster.server->address(), cluster.authority.Of(who));
  absl::Status last;
  for (int i = 0; i < 1000 && last.ok(); ++i) {
    last = client.Call("/lockstep.v1.JobService/ListJobs", "");
  }
  return last;
}

absl::Status WatchOften(Cluster& cluster) {
  RawClient client(cluster.server->address(), cluster.authority.Of("victor"));
  v1::WatchJobRequest request;
  request.set_job("train");
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>>> watches;
  for (int i = 0; i < 20; ++i) {
    contexts.push_back(NewContext());
    watches.push_back(client.jobs().WatchJob(contexts.back().get(), request));
    v1::WatchJobResponse response;
    if (watches.back()->Read(&response)) continue;
    const grpc::Status refused = watches.back()->Finish();
    for (const auto& context : contexts) context->TryCancel();
    for (std::size_t w = 0; w + 1 < watches.size(); ++w) (void)watches[w]->Finish();
    return {static_cast<absl::StatusCode>(refused.error_code()), refused.error_message()};
  }
  return absl::OkStatus();
}

// Streams that say nothing after their Hello, from one caller.
absl::Status HoldManyStreams(Cluster& cluster) {
  RawClient client(cluster.server->address(), cluster.authority.Of("anyone"));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>>>
      streams;
  std::optional<absl::Status> refused;
  for (int i = 0; i < 30 && !refused; ++i) {
    contexts.push_back(NewContext());
    streams.push_back(client.membership().Attend(contexts.back().get()));
    streams.back()->Write(Hello(absl::StrCat("idle-", i), 1, "crowd"));
    v1::AttendResponse welcome;
    if (streams.back()->Read(&welcome)) continue;
    const grpc::Status status = streams.back()->Finish();
    refused.emplace(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  for (const auto& context : contexts) context->TryCancel();
  for (std::size_t i = 0; i + (refused ? 1 : 0) < streams.size(); ++i) (void)streams[i]->Finish();
  return refused.value_or(absl::OkStatus());
}

absl::Status AttendAgainAndAgain(Cluster& cluster) {
  RawClient client(cluster.server->address(), cluster.authority.Of("anyone"));
  for (int i = 1; i <= 20; ++i) {
    const std::unique_ptr<grpc::ClientContext> context = NewContext();
    const auto stream = client.membership().Attend(context.get());
    stream->Write(Hello("restless", i));
    v1::AttendResponse welcome;
    if (stream->Read(&welcome)) {
      context->TryCancel();
      (void)stream->Finish();
      continue;
    }
    const grpc::Status status = stream->Finish();
    return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
  }
  return absl::OkStatus();
}

absl::Status ReplayAnIncarnation(Cluster& cluster) {
  RawClient client(cluster.server->address(), cluster.authority.Of("anyone"));
  const std::unique_ptr<grpc::ClientContext> context = NewContext();
  const auto stream = client.membership().Attend(context.get());
  stream->Write(Hello("twin", 7));
  v1::AttendResponse welcome;
  if (!stream->Read(&welcome)) return absl::InternalError("the first was not welcome");
  const absl::Status replayed = client.Attend({Hello("twin", 6)});
  context->TryCancel();
  (void)stream->Finish();
  return replayed;
}

// Reads nothing while much is said to it, and for `pause` after that.
absl::Status ReadSlowly(Cluster& cluster, const std::string& job, absl::Duration pause) {
  RawClient client(cluster.server->address(), cluster.authority.Of("anyone"));
  v1::JobSpec spec;
  spec.set_name(job);
  spec.set_min_workers(1);
  LOCKSTEP_EXPECT_OK(cluster.client->CreateJob(spec));
  const std::unique_ptr<grpc::ClientContext> context = NewContext();
  const auto stream = client.membership().Attend(context.get());
  stream->Write(Hello("reader", 1, job));
  v1::AttendResponse heard;
  while (!heard.has_proposal()) {
    if (!stream->Read(&heard)) return absl::InternalError("no proposal");
  }
  v1::UpdateSyncPolicyRequest update = Update(job);
  update.set_allow_unmatched(true);
  for (int i = 0; i < 200; ++i) {
    update.mutable_policy()->add_ignore_list(absl::StrCat(std::string(1000, 'x'), i));
  }
  for (int i = 0; i < 40; ++i) {
    update.mutable_policy()->set_check_parameters_every_steps(i + 1);
    LOCKSTEP_EXPECT_OK(cluster.client->UpdateSyncPolicy(update));
  }
  absl::SleepFor(pause);
  while (stream->Read(&heard)) {
  }
  const grpc::Status status = stream->Finish();
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

// What a peer says on a bare connection; OK if it is still open after `patience`.
absl::Status SayOnSocket(Cluster& cluster, const std::string& text) {
  const std::string address = cluster.server->address();
  int port = 0;
  LOCKSTEP_CHECK(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    close(fd);
    return absl::InternalError("cannot connect");
  }
  const timeval patience = {.tv_sec = 15, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  (void)!write(fd, text.data(), text.size());
  char buffer[4096];
  ssize_t got = 0;
  while ((got = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
  }
  const bool is_open = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  close(fd);
  return is_open ? absl::OkStatus() : absl::UnavailableError("closed");
}

std::vector<BadClient> BadClients() {
  using C = Cluster;
  const auto of = [](C& c, const char* who) { return c.authority.Of(who); };
  return {
      // Certificates.
      {"SpeaksNoTls", kUnavailable, [](C& c) { return List(c, {}); }},
      {"HasNoCertificateAndNoToken", kUnauthenticated,
       [](C& c) {
         return RawClient(c.server->address(), ShowNothing(c.authority.Of("alice").authorities))
             .Call("/lockstep.v1.JobService/ListJobs", "");
       }},
      {"HasAnEmptyToken", kUnauthenticated,
       [](C& c) { return List(c, c.authority.WithToken(" ")); }},
      {"IsOfAnotherAuthority", kUnavailable,
       [](C& c) {
         const Authority other;
         other.Make("operator mallory");
         TlsFiles tls = other.Of("mallory");
         tls.authorities = c.authority.Of("alice").authorities;
         return List(c, tls);
       }},
      {"TrustsAnotherAuthority", kUnavailable,
       [](C& c) {
         const Authority other;
         other.Make("operator mallory");
         return List(c, other.Of("mallory"));
       }},
      {"HasAnExpiredCertificate", kUnavailable,
       [](C& c) {
         c.authority.Make("operator late", "DAYS=0");
         absl::SleepFor(absl::Milliseconds(1100));
         return List(c, c.authority.Of("late"));
       }},
      {"HasTheKeyOfAnother", kUnavailable,
       [](C& c) {
         TlsFiles tls = c.authority.Of("alice");
         tls.key = c.authority.Of("victor").key;
         return List(c, tls);
       }},
      {"ShowsTheServersCertificate", kUnavailable,
       [=](C& c) { return List(c, of(c, "server")); }},
      // Roles.
      {"ViewerWhoCreatesAJob", kPermissionDenied,
       [=](C& c) {
         v1::CreateJobRequest request;
         request.mutable_spec()->set_name("mine");
         return Call(c, of(c, "victor"), "JobService/CreateJob", request);
       }},
      {"ViewerWhoChangesAPolicy", kPermissionDenied,
       [=](C& c) {
         return Call(c, of(c, "victor"), "SyncPolicyService/UpdateSyncPolicy", Update("train"));
       }},
      {"ViewerWhoDrains", kPermissionDenied,
       [=](C& c) {
         v1::DrainWorkerRequest request;
         request.set_job("train");
         request.set_worker("w0");
         return Call(c, of(c, "victor"), "JobService/DrainWorker", request);
       }},
      {"ViewerWhoAttends", kPermissionDenied,
       [](C& c) { return AttendAs(c, "victor", {Hello("w9")}); }},
      {"OperatorWhoAttends", kPermissionDenied,
       [](C& c) { return AttendAs(c, "alice", {Hello("w9")}); }},
      {"WorkerWhoDeletesAJob", kPermissionDenied,
       [=](C& c) {
         return Call(c, of(c, "anyone"), "JobService/DeleteJob", Deletion("train"));
       }},
      {"WorkerWhoListsJobs", kPermissionDenied, [=](C& c) { return List(c, of(c, "anyone")); }},
      {"WorkerOfAnotherJob", kPermissionDenied,
       [](C& c) { return AttendAs(c, "bound", {Hello("b0", 1, "train")}); }},
      {"WorkerUnderAnotherName", kPermissionDenied,
       [](C& c) { return AttendAs(c, "bound", {Hello("w0")}); }},
      {"WorkerWhoChangesAnotherJobsPolicy", kPermissionDenied,
       [=](C& c) {
         return Call(c, of(c, "bound"), "SyncPolicyService/UpdateSyncPolicy", Update("train"));
       }},
      {"OperatorOfAnotherJob", kPermissionDenied,
       [=](C& c) { return Call(c, of(c, "clerk"), "JobService/DeleteJob", Deletion("train")); }},
      {"OperatorWhoCreatesAnotherJob", kPermissionDenied,
       [=](C& c) {
         v1::CreateJobRequest request;
         request.mutable_spec()->set_name("third");
         request.mutable_spec()->set_min_workers(1);
         return Call(c, of(c, "clerk"), "JobService/CreateJob", request);
       }},
      {"WatcherOfAnotherJob", kPermissionDenied,
       [=](C& c) {
         v1::WatchJobRequest request;
         request.set_job("train");
         return Call(c, of(c, "clerk"), "JobService/WatchJob", request);
       }},
      // Tokens.
      {"HasAnUnknownToken", kUnauthenticated,
       [](C& c) { return List(c, c.authority.WithToken("guessed")); }},
      {"HasAnExpiredToken", kUnauthenticated,
       [](C& c) { return List(c, c.authority.WithToken("old-token")); }},
      {"HasTheHashInsteadOfTheToken", kUnauthenticated,
       [](C& c) { return List(c, c.authority.WithToken(Sha256("viewer-token"))); }},
      {"HasATokenForLess", kPermissionDenied,
       [](C& c) {
         return Call(c, c.authority.WithToken("viewer-token"), "JobService/DeleteJob",
                     Deletion("train"));
       }},
      {"AuthorizesByAPassword", kUnauthenticated,
       [=](C& c) {
         return RawClient(c.server->address(), of(c, "alice"))
             .Call("/lockstep.v1.JobService/ListJobs", "",
                   {{"authorization", "Basic YWxpY2U6c2VjcmV0"}});
       }},
      {"HasATokenThatWasTakenBack", kUnauthenticated,
       [](C& c) {
         LOCKSTEP_EXPECT_OK(WriteFile(c.tokens, c.TokenLines(Sha256("brief") + " b viewer\n")));
         const TlsFiles tls = c.authority.WithToken("brief");
         for (int i = 0; i < 50 && !List(c, tls).ok(); ++i) absl::SleepFor(absl::Milliseconds(100));
         LOCKSTEP_EXPECT_OK(List(c, tls));
         LOCKSTEP_EXPECT_OK(WriteFile(c.tokens, c.TokenLines()));
         for (int i = 0; i < 50 && List(c, tls).ok(); ++i) absl::SleepFor(absl::Milliseconds(100));
         return List(c, tls);
       }},
      {"SendsMuchMetadata", kResourceExhausted,
       [=](C& c) {
         return RawClient(c.server->address(), of(c, "alice"))
             .Call("/lockstep.v1.JobService/ListJobs", "", {{"x", std::string(100'000, 'x')}});
       }},
      // Calls.
      {"CallsWhatThereIsNot", kPermissionDenied,
       [=](C& c) {
         return RawClient(c.server->address(), of(c, "alice"))
             .Call("/lockstep.v1.JobService/Format", "");
       }},
      // gRPC's own answer; the request never reaches a service.
      {"SendsBytesThatAreNoMessage", kUnimplemented,
       [=](C& c) {
         return RawClient(c.server->address(), of(c, "alice"))
             .Call("/lockstep.v1.JobService/GetJob", "\xff\xff\xff\xff");
       }},
      {"SendsAMessageOf65MiB", kResourceExhausted,
       [=](C& c) {
         return RawClient(c.server->address(), of(c, "alice"))
             .Call("/lockstep.v1.JobService/GetJob", std::string(65 << 20, '\n'));
       }},
      {"SendsARequestOf5MiB", kResourceExhausted,
       [=](C& c) {
         v1::UpdateSyncPolicyRequest request = Update("train");
         request.set_reason(std::string(5 << 20, 'x'));
         return Call(c, of(c, "alice"), "SyncPolicyService/UpdateSyncPolicy", request);
       }},
      {"NamesNoJob", kInvalidArgument,
       [=](C& c) { return Call(c, of(c, "alice"), "JobService/GetJob", v1::GetJobRequest()); }},
      {"NamesAnUnknownJob", kNotFound,
       [=](C& c) {
         return Call(c, of(c, "alice"), "JobService/DeleteJob", Deletion("nonsuch"));
       }},
      {"AsksForAPageOfMinusOne", kInvalidArgument,
       [=](C& c) {
         v1::ListJobsRequest request;
         request.set_page_size(-1);
         return Call(c, of(c, "alice"), "JobService/ListJobs", request);
       }},
      {"GoesOnWhereNoListWas", kInvalidArgument,
       [=](C& c) {
         v1::ListJobsRequest request;
         request.set_page_token("rubbish");
         return Call(c, of(c, "alice"), "JobService/ListJobs", request);
       }},
      {"ChangesAPolicyByAStaleEtag", kAborted,
       [=](C& c) {
         v1::UpdateSyncPolicyRequest request = Update("train");
         request.set_etag("stale");
         return Call(c, of(c, "alice"), "SyncPolicyService/UpdateSyncPolicy", request);
       }},
      {"WritesAPatternThatIsNone", kInvalidArgument,
       [=](C& c) {
         v1::UpdateSyncPolicyRequest request = Update("train");
         request.mutable_policy()->add_allow_list("re:(");
         return Call(c, of(c, "alice"), "SyncPolicyService/UpdateSyncPolicy", request);
       }},
      {"WritesAHundredThousandPatterns", kInvalidArgument,
       [=](C& c) {
         v1::UpdateSyncPolicyRequest request = Update("train");
         for (int i = 0; i < 100'000; ++i) request.mutable_policy()->add_allow_list("**");
         return Call(c, of(c, "alice"), "SyncPolicyService/UpdateSyncPolicy", request);
       }},
      {"CallsWithoutEnd", kResourceExhausted, [](C& c) { return Flood(c, "victor"); }},
      {"WatchesWithoutEnd", kResourceExhausted,
       [](C& c) {
         absl::SleepFor(absl::Seconds(1));  // what the flood used up comes back
         return WatchOften(c);
       }},
      // Streams.
      {"SaysNothing", kDeadlineExceeded, [](C& c) { return AttendAs(c, "anyone", {}); }},
      {"SaysAnEmptyMessage", kInvalidArgument,
       [](C& c) { return AttendAs(c, "anyone", {v1::AttendRequest()}); }},
      {"BeginsWithoutHello", kInvalidArgument,
       [](C& c) { return AttendAs(c, "anyone", {Heartbeat()}); }},
      {"SaysHelloTwice", kInvalidArgument,
       [](C& c) { return AttendAs(c, "anyone", {Hello("double"), Hello("double")}); }},
      {"AttendsNoJob", kNotFound,
       [](C& c) { return AttendAs(c, "anyone", {Hello("w9", 1, "nonsuch")}); }},
      {"HasNoIncarnation", kInvalidArgument,
       [](C& c) { return AttendAs(c, "anyone", {Hello("w9", 0)}); }},
      {"ReplaysAnIncarnation", kAborted, ReplayAnIncarnation},
      {"HasATensorOfNoType", kInvalidArgument,
       [](C& c) {
         return AttendWith(c, [](auto& h) {
           h.mutable_manifest()->mutable_parameters(0)->set_dtype(999);
         });
       }},
      {"HasATensorOfNegativeSize", kInvalidArgument,
       [](C& c) {
         return AttendWith(c, [](auto& h) {
           h.mutable_manifest()->mutable_parameters(0)->add_shape(-1);
         });
       }},
      {"HasATensorWithoutEnd", kInvalidArgument,
       [](C& c) {
         return AttendWith(c, [](auto& h) {
           for (int i = 0; i < 3; ++i) {
             h.mutable_manifest()->mutable_parameters(0)->add_shape(INT64_MAX);
           }
         });
       }},
      {"HasTwoTensorsOfOneName", kInvalidArgument,
       [](C& c) {
         return AttendWith(c, [](auto& h) {
           *h.mutable_manifest()->add_parameters() = h.manifest().parameters(0);
         });
       }},
      {"HasANameWithoutEnd", kInvalidArgument,
       [](C& c) { return AttendWith(c, [](auto& h) { h.set_worker(std::string(10'000, 'w')); }); }},
      {"HasATransportWithoutEnd", kInvalidArgument,
       [](C& c) {
         return AttendWith(c, [](auto& h) { h.set_transport(std::string(10'000, 't')); });
       }},
      {"TalksWithoutEnd", kResourceExhausted,
       [=](C& c) {
         std::vector<v1::AttendRequest> messages(500, Heartbeat());
         messages.insert(messages.begin(), Hello("talker"));
         return AttendAs(c, "anyone", messages);
       }},
      {"AttendsAgainAndAgain", kResourceExhausted, AttendAgainAndAgain},
      {"HoldsManyStreams", kResourceExhausted,
       [](C& c) {
         v1::JobSpec spec;
         spec.set_name("crowd");
         spec.set_min_workers(100);
         LOCKSTEP_EXPECT_OK(c.client->CreateJob(spec));
         return HoldManyStreams(c);
       }},
      {"ReadsNothingForLong", kResourceExhausted,
       [](C& c) { return ReadSlowly(c, "slow", absl::ZeroDuration()); }},
      // Whose stream was cut off meanwhile: there was no way to tell it.
      {"ReadsNothingForLonger", kCancelled,
       [](C& c) { return ReadSlowly(c, "deaf", absl::Seconds(2)); }},
      // Connections.
      {"SpeaksHttpInTheClear", kUnavailable,
       [](C& c) { return SayOnSocket(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); }},
      {"NeverFinishesItsHandshake", kUnavailable,
       [](C& c) { return SayOnSocket(c, std::string("\x16\x03\x01\x02", 4)); }},
  };
}

class BadClientTest : public testing::TestWithParam<BadClient> {
 protected:
  static void SetUpTestSuite() { cluster_ = new Cluster; }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  static Cluster* cluster_;
};

Cluster* BadClientTest::cluster_ = nullptr;

TEST_P(BadClientTest, IsTurnedAwayWhileTheJobTrainsOn) {
  const v1::Job before = cluster_->job();
  ASSERT_EQ(before.state(), v1::Job::STATE_RUNNING);

  EXPECT_THAT(GetParam().act(*cluster_), StatusIs(GetParam().code));

  cluster_->AwaitStepsAfter(before.step());
  const v1::Job after = cluster_->job();
  EXPECT_EQ(after.state(), v1::Job::STATE_RUNNING);
  EXPECT_EQ(after.epoch(), before.epoch());
  EXPECT_EQ(after.log_number(), before.log_number());
  EXPECT_EQ(after.policy().revision(), before.policy().revision());
  const auto workers = cluster_->client->ListWorkers("train");
  LOCKSTEP_ASSERT_OK(workers);
  ASSERT_EQ(workers->size(), kWorkers);
  for (const v1::Worker& worker : *workers) {
    EXPECT_EQ(worker.state(), v1::Worker::STATE_TRAINING) << worker.name();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, BadClientTest, testing::ValuesIn(BadClients()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep
