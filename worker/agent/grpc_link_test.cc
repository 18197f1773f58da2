#include "worker/agent/grpc_link.h"

#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mailbox.h"
#include "common/base/mutex.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "lockstep/v1/membership.grpc.pb.h"
#include "lockstep/v1/membership.pb.h"
#include "lockstep/v1/policy.grpc.pb.h"
#include "lockstep/v1/policy.pb.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);  // never waited for in full

// The coordinator's side of one stream.
class Conversation {
 public:
  using Stream = grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>;

  explicit Conversation(Stream* stream) : stream_(stream) {}

  // The worker's next message of this kind; others are skipped. An empty one
  // once the worker says no more.
  template <typename M>
  M Read() {
    v1::AttendRequest request;
    while (stream_->Read(&request)) {
      const absl::StatusOr<WorkerMessage> message = FromProto(request);
      EXPECT_THAT(message, IsOk());
      if (!message.ok()) break;
      if (const M* found = std::get_if<M>(&*message)) return *found;
    }
    return {};
  }
  void Say(const CoordinatorMessage& message) { SayRaw(ToProto(message)); }
  void SayRaw(const v1::AttendResponse& response) { stream_->Write(response); }

 private:
  Stream* const stream_;
};

using Script = std::function<grpc::Status(Conversation&)>;

// Answers to policy updates as a test says.
class ScriptedPolicies final : public v1::SyncPolicyService::Service {
 public:
  using Script = std::function<grpc::Status(const v1::UpdateSyncPolicyRequest&,
                                            v1::UpdateSyncPolicyResponse*)>;

  explicit ScriptedPolicies(Script script) : script_(std::move(script)) {}
  grpc::Status UpdateSyncPolicy(grpc::ServerContext* context,
                                const v1::UpdateSyncPolicyRequest* request,
                                v1::UpdateSyncPolicyResponse* response) override {
    return script_(*request, response);
  }

 private:
  const Script script_;
};

// Membership on loopback: the n-th stream follows the n-th script.
class ScriptedCoordinator final : public v1::MembershipService::Service {
 public:
  explicit ScriptedCoordinator(std::vector<Script> scripts, int port = 0,
                               ScriptedPolicies* policies = nullptr)
      : scripts_(scripts.begin(), scripts.end()) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port),
                             grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.RegisterService(this);
    if (policies != nullptr) builder.RegisterService(policies);
    server_ = builder.BuildAndStart();
  }
  ~ScriptedCoordinator() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Attend(grpc::ServerContext* context, Conversation::Stream* stream) override {
    Script script;
    {
      MutexLock lock(&mu_);
      if (scripts_.empty()) return {grpc::StatusCode::UNAVAILABLE, "no script is left"};
      script = std::move(scripts_.front());
      scripts_.pop_front();
    }
    Conversation conversation(stream);
    return script(conversation);
  }
  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  Mutex mu_;
  std::deque<Script> scripts_ ABSL_GUARDED_BY(mu_);
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

Hello HelloOfB() {
  Hello hello = {
      .job = "j", .worker = "b", .incarnation = Incarnation(77), .transport = "shm"};
  hello.manifest.parameters.push_back({{"fc.weight", DType::kFloat32, {2, 3}}, true});
  hello.manifest.optimizer = "SGD(lr=0.1)";
  return hello;
}

Welcome WelcomeOf(int generation) {
  return {.generation = Generation(generation),
          .lease = absl::Seconds(10),
          .heartbeat_interval = absl::Milliseconds(10)};
}

Proposal ProposalOf(int epoch, int log_number) {
  ShardPlan plan;
  plan.flat_elements = 32;
  plan.blocks = {{DType::kFloat32, 0, 32}};
  plan.placements = {{"fc.weight", 0, 6}};
  plan.shards = {{0, 16}, {16, 32}};
  return {.epoch = Epoch(epoch),
          .members = {"a", "b"},
          .plan = plan,
          .log_number = LogNumber(log_number),
          .revision = Revision(1),
          .policy = SyncPolicy{},
          .ready_timeout = absl::Seconds(60)};
}

NewEntries EntriesOf(std::vector<int> numbers) {
  NewEntries message;
  for (const int number : numbers) {
    const ControlEntry entry = {LogNumber(number), SyncOnce{}};
    message.entries.push_back(entry);
  }
  return message;
}

absl::StatusOr<std::unique_ptr<CoordinatorLink>> Connect(const ScriptedCoordinator& coordinator) {
  return ConnectToCoordinator({.address = coordinator.address(), .connect_timeout = kLong},
                              HelloOfB());
}

TEST(GrpcLink, CarriesAnEpochFromHelloToLeave) {
  Mailbox<Leave> left(1);
  ScriptedCoordinator coordinator({[&](Conversation& worker) {
    EXPECT_EQ(worker.Read<Hello>(), HelloOfB());
    worker.Say(WelcomeOf(1));
    worker.Say(ProposalOf(3, 5));
    EXPECT_EQ(worker.Read<Endpoint>(), (Endpoint{Epoch(3), "here"}));
    worker.Say(Endpoint{Epoch(3), "here"});
    EXPECT_EQ(worker.Read<Ready>(), (Ready{Epoch(3), 99, 1024}));
    worker.Say(Start{Epoch(3)});
    worker.Say(EntriesOf({6, 7}));
    worker.Say(EntriesOf({8}));
    EXPECT_EQ(worker.Read<Applied>(), (Applied{Epoch(3), LogNumber(5), 1}));
    EXPECT_EQ(worker.Read<Heartbeat>().epoch, Epoch(3));
    worker.Say(AbortEpoch{Epoch(3), absl::UnavailableError("a is lost")});
    LOCKSTEP_EXPECT_OK(left.Post(worker.Read<Leave>()));
    return grpc::Status::OK;
  }});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CoordinatorLink> link, Connect(coordinator));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Proposal proposal, link->AwaitProposal(kLong));
  EXPECT_EQ(proposal, ProposalOf(3, 5));
  EXPECT_THAT(link->ExchangeEndpoint(Epoch(3), "here", kLong), IsOk());
  LOCKSTEP_ASSERT_OK(link->AwaitStart({Epoch(3), 99, 1024}, kLong));
  link->ReportApplied(LogNumber(5), 1);

  Mailbox<absl::Status> aborted(1);
  link->OnAbort([&](const absl::Status& why) { LOCKSTEP_EXPECT_OK(aborted.Post(why)); });
  const std::vector<absl::Status> why = aborted.Drain(kLong);
  ASSERT_EQ(why.size(), 1u);
  EXPECT_THAT(why[0], StatusIs(absl::StatusCode::kAborted, HasSubstr("a is lost")));
  // What was said before the abort is there by now.
  EXPECT_EQ(link->EntriesAfter(LogNumber(5)), EntriesOf({6, 7, 8}).entries);

  link->Leave(absl::InternalError("a is lost"));
  EXPECT_EQ(left.Drain(kLong),
            std::vector<Leave>({Leave{Epoch(), absl::InternalError("a is lost")}}));
}

TEST(GrpcLink, DialsAgainWithItsEpochAndLogAfterABreak) {
  Mailbox<Hello> again(1);
  ScriptedCoordinator coordinator(
      {[](Conversation& worker) {
         worker.Read<Hello>();
         worker.Say(WelcomeOf(1));
         worker.Say(ProposalOf(3, 5));
         worker.Say(EntriesOf({6}));
         return grpc::Status(grpc::StatusCode::UNAVAILABLE, "going down");
       },
       [&](Conversation& worker) {
         LOCKSTEP_EXPECT_OK(again.Post(worker.Read<Hello>()));
         worker.Say(WelcomeOf(2));
         EXPECT_EQ(worker.Read<Leave>().epoch, Epoch(3));
         return grpc::Status::OK;
       }});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CoordinatorLink> link, Connect(coordinator));
  LOCKSTEP_ASSERT_OK(link->AwaitProposal(kLong).status());
  const std::vector<Hello> hello = again.Drain(kLong);
  ASSERT_EQ(hello.size(), 1u);
  EXPECT_EQ(hello[0].incarnation, Incarnation(77));
  EXPECT_EQ(hello[0].epoch, Epoch(3));
  EXPECT_EQ(hello[0].log_number, LogNumber(6));
  link->Leave(absl::OkStatus());
}

TEST(GrpcLink, OutlivesARestartOfTheCoordinator) {
  const Script first = [](Conversation& worker) {
    worker.Read<Hello>();
    worker.Say(WelcomeOf(1));
    worker.Say(ProposalOf(3, 0));
    worker.Read<Leave>();  // until the process goes
    return grpc::Status::OK;
  };
  Mailbox<Hello> again(1);
  const Script second = [&](Conversation& worker) {
    LOCKSTEP_EXPECT_OK(again.Post(worker.Read<Hello>()));
    worker.Say(WelcomeOf(2));
    const Heartbeat heartbeat = worker.Read<Heartbeat>();
    EXPECT_EQ(heartbeat.step, 12);
    EXPECT_EQ(heartbeat.sync, (SyncCounters{.syncs = 5, .bytes = 40}));
    worker.Say(AbortEpoch{Epoch(3), absl::UnavailableError("seen")});
    worker.Read<Leave>();
    return grpc::Status::OK;
  };
  auto coordinator = std::make_unique<ScriptedCoordinator>(std::vector<Script>{first});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CoordinatorLink> link,
                                Connect(*coordinator));
  LOCKSTEP_ASSERT_OK(link->AwaitProposal(kLong).status());
  const int port = coordinator->port();
  coordinator.reset();
  link->ReportProgress(12, Phase::kTraining, {}, {.syncs = 5, .bytes = 40});
  coordinator = std::make_unique<ScriptedCoordinator>(std::vector<Script>{second}, port);
  ASSERT_EQ(coordinator->port(), port);
  EXPECT_EQ(again.Drain(kLong).size(), 1u);
  Mailbox<absl::Status> aborted(1);
  link->OnAbort([&](const absl::Status& why) { LOCKSTEP_EXPECT_OK(aborted.Post(why)); });
  EXPECT_EQ(aborted.Drain(kLong).size(), 1u);
  link->Leave(absl::OkStatus());
}

TEST(GrpcLink, AFinalStatusReachesAwaitProposal) {
  ScriptedCoordinator coordinator({[](Conversation& worker) {
    worker.Read<Hello>();
    worker.Say(WelcomeOf(1));
    worker.Read<Heartbeat>();
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "job 'j' was deleted");
  }});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CoordinatorLink> link, Connect(coordinator));
  EXPECT_THAT(link->AwaitProposal(kLong),
              StatusIs(absl::StatusCode::kNotFound, "job 'j' was deleted"));
}

TEST(GrpcLink, AWorkerThatIsTurnedAwayAtOnceIsToldWhy) {
  ScriptedCoordinator coordinator({[](Conversation& worker) {
    worker.Read<Hello>();
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "there is no job 'j'");
  }});
  EXPECT_THAT(Connect(coordinator),
              StatusIs(absl::StatusCode::kNotFound, "there is no job 'j'"));
}

TEST(GrpcLink, SaysWhichCoordinatorItCannotReach) {
  std::string address;
  {
    const ScriptedCoordinator gone({});
    address = gone.address();
  }
  EXPECT_THAT(
      ConnectToCoordinator({.address = address, .connect_timeout = absl::Milliseconds(100)},
                           HelloOfB()),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr(absl::StrCat("cannot reach the coordinator at ", address)),
                     HasSubstr("is it running?"))));
}

TEST(GrpcLink, DoesNotGoByAProxyOfTheEnvironment) {
  const char* const variables[] = {"http_proxy", "grpc_proxy", "https_proxy"};
  for (const char* variable : variables) setenv(variable, "http://127.0.0.1:9", /*overwrite=*/1);
  ScriptedCoordinator coordinator({[](Conversation& worker) {
    worker.Read<Hello>();
    worker.Say(WelcomeOf(1));
    worker.Read<Leave>();
    return grpc::Status::OK;
  }});
  const auto link = ConnectToCoordinator(
      {.address = coordinator.address(), .connect_timeout = absl::Seconds(10)}, HelloOfB());
  for (const char* variable : variables) unsetenv(variable);
  LOCKSTEP_ASSERT_OK(link.status());
  (*link)->Leave(absl::OkStatus());
}

TEST(GrpcLink, RefusesOptionsAndAHelloThatCannotWork) {
  EXPECT_THAT(ConnectToCoordinator({}, HelloOfB()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("address")));
  EXPECT_THAT(ConnectToCoordinator({.address = "x:1", .connect_timeout = absl::ZeroDuration()},
                                   HelloOfB()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("connect_timeout")));
  EXPECT_THAT(ConnectToCoordinator({.address = "x:1"}, Hello{.job = "j", .worker = "b"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("incarnation")));
}

TEST(GrpcLink, AMessageItDoesNotUnderstandEndsTheLink) {
  ScriptedCoordinator coordinator({[](Conversation& worker) {
    worker.Read<Hello>();
    worker.Say(WelcomeOf(1));
    worker.SayRaw(v1::AttendResponse());
    worker.Read<Leave>();
    return grpc::Status::OK;
  }});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CoordinatorLink> link, Connect(coordinator));
  EXPECT_THAT(link->AwaitProposal(kLong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not understand")));
}

// Attends until it leaves.
grpc::Status Stay(Conversation& worker) {
  worker.Read<Hello>();
  worker.Say(WelcomeOf(1));
  worker.Read<Leave>();
  return grpc::Status::OK;
}

TEST(GrpcLink, RevisesThePolicyInTheNameOfTheWorker) {
  const SyncPolicy policy = {.ignore_list = {"ema.**"}, .operation = Operation::kMean};
  ScriptedPolicies policies([&](const v1::UpdateSyncPolicyRequest& request,
                                v1::UpdateSyncPolicyResponse* response) {
    EXPECT_EQ(request.job(), "j");
    EXPECT_EQ(request.author(), "b");
    EXPECT_EQ(request.reason(), "EMA drifts on purpose");
    EXPECT_EQ(request.etag(), "");
    EXPECT_FALSE(request.allow_unmatched());
    EXPECT_FALSE(request.validate_only());
    const absl::StatusOr<SyncPolicy> sent = FromProto(request.policy());
    EXPECT_TRUE(sent.ok() && *sent == policy);
    response->mutable_revision()->set_revision(4);
    return grpc::Status::OK;
  });
  ScriptedCoordinator coordinator({Stay}, 0, &policies);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CoordinatorLink> link, Connect(coordinator));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Revision revision,
                                link->RevisePolicy(policy, "EMA drifts on purpose", kLong));
  EXPECT_EQ(revision, Revision(4));
  EXPECT_THAT(link->RevisePolicy({.ignore_list = {"re:("}}, "", kLong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ignore_list")));
  link->Leave(absl::OkStatus());
}

TEST(GrpcLink, ARefusedPolicyRevisionComesBackAsTheCoordinatorWordsIt) {
  ScriptedPolicies policies([](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "'emma.**' matches no buffer");
  });
  ScriptedCoordinator coordinator({Stay}, 0, &policies);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CoordinatorLink> link, Connect(coordinator));
  EXPECT_THAT(link->RevisePolicy({}, "", kLong),
              StatusIs(absl::StatusCode::kInvalidArgument, "'emma.**' matches no buffer"));
  link->Leave(absl::OkStatus());
}

TEST(GrpcLink, APolicyRevisionWithoutAnAnswerSaysWhatIsNotKnown) {
  Mailbox<int> given_up(1);
  ScriptedPolicies policies([&](const auto&, auto*) {
    given_up.Drain(kLong);
    return grpc::Status::OK;
  });
  auto coordinator = std::make_unique<ScriptedCoordinator>(std::vector<Script>{Stay}, 0, &policies);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CoordinatorLink> link,
                                Connect(*coordinator));
  EXPECT_THAT(link->RevisePolicy({}, "", absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(coordinator->address()), HasSubstr("within 50ms"),
                             HasSubstr("is not known"))));
  given_up.Close();
  // Now it answers in time, but without the number of a revision.
  EXPECT_THAT(link->RevisePolicy({}, "", kLong),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("of the same version")));
  const std::string address = coordinator->address();
  coordinator.reset();
  EXPECT_THAT(link->RevisePolicy({}, "", kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(address), HasSubstr("is not known"))));
}

TEST(GrpcLink, AManifestOfManyTensorsFits) {
  Hello hello = HelloOfB();
  for (int i = 0; i < 50'000; ++i) {
    hello.manifest.buffers.push_back(
        {absl::StrCat(std::string(150, 'b'), i), DType::kFloat32, {3}});
  }
  ScriptedCoordinator coordinator({[&](Conversation& worker) {
    EXPECT_TRUE(worker.Read<Hello>() == hello);
    worker.Say(WelcomeOf(1));
    worker.Read<Leave>();
    return grpc::Status::OK;
  }});
  EXPECT_THAT(ConnectToCoordinator(
                  {.address = coordinator.address(), .connect_timeout = kLong}, hello),
              IsOk());
}

}  // namespace
}  // namespace lockstep
