#include "tests/bench/coordinator/fleet.h"

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/protocol/messages.h"
#include "common/sharding/shard_plan.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/membership.pb.h"
#include "proto/convert/convert.h"
#include "proto/convert/status_convert.h"
#include "security/tls.h"
#include "tests/bench/coordinator/fleet_stream.h"

namespace lockstep {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
constexpr absl::Duration kPause = absl::Milliseconds(2);
// As real workers do.
constexpr absl::Duration kBeatInterval = absl::Seconds(1);
// Heartbeats of epochs from this one on, which never were, are answered: a worker is told that
// such an epoch is over (coordinator/core/membership.h).
constexpr std::int64_t kFirstProbe = std::int64_t{1} << 40;
constexpr std::int64_t kBeatsForAProbe = 50;

// How far a worker came; in this order.
enum Progress { kOpening, kWelcomed, kProposed, kStarted };
constexpr std::array<absl::string_view, 4> kProgressNames = {"opened its stream", "got Welcome",
                                                             "got Proposal", "got Start"};

struct Member {
  std::string name;
  Progress progress = kOpening;
  std::int64_t epoch = 0;       // 0: in none
  std::int64_t log_number = 0;  // received
  std::unique_ptr<FleetStream> stream;
  bool is_open = false;
};

// What was sent in Beat() and what came back.
struct Probes {
  std::vector<absl::Time> sent;
  std::vector<double> latencies_ms;  // of those that were answered
  absl::Time last_answer;
};

}  // namespace

Manifest FleetModel() {
  Manifest model;
  for (const char* layer : {"layer1", "layer2"}) {
    for (const auto& [name, shape] :
         {std::pair(".weight", std::vector<std::int64_t>{1000, 1000}),
          std::pair(".bias", std::vector<std::int64_t>{1000})}) {
      model.parameters.push_back({.tensor = {.name = absl::StrCat(layer, name),
                                             .dtype = DType::kFloat32,
                                             .shape = shape}});
    }
  }
  for (const char* name : {"bn.running_mean", "bn.running_var"}) {
    model.buffers.push_back({.name = name, .dtype = DType::kFloat32, .shape = {1000}});
  }
  model.optimizer = "SGD(lr=0.1)";
  return model;
}

class Fleet::Impl final : public FleetStreamSink {
 public:
  Impl(const FleetOptions& options, std::shared_ptr<grpc::ChannelCredentials> credentials,
       std::uint64_t plan_digest)
      : options_(options),
        credentials_(std::move(credentials)),
        plan_digest_(plan_digest),
        incarnation_(absl::ToUnixNanos(absl::Now())),
        members_(static_cast<std::size_t>(options.workers)) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      members_[i].name = absl::StrFormat("worker-%05d", i);  // sorted: ranks are in this order
    }
    pacer_ = std::thread([this] { BeatOnceASecond(); });
  }

  ~Impl() override {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      loss_is_expected_ = true;
      changed_.SignalAll();
    }
    pacer_.join();
    // Nobody replaces streams any more.
    for (Member& member : members_) {
      if (member.stream != nullptr) member.stream->Cancel();
    }
    MutexLock lock(&mu_);
    // Without a deadline: gRPC ends a cancelled call without the other side.
    changed_.AwaitFor(&mu_, absl::InfiniteDuration(), [this] { return open_ == 0; });
  }

  void Attend() {
    {
      MutexLock lock(&mu_);
      loss_is_expected_ = false;
      reached_ = {};
    }
    stubs_.clear();
    for (int i = 0; i < options_.workers; ++i) {
      if (i % options_.workers_per_connection == 0) stubs_.push_back(Connect());
      MutexLock lock(&mu_);
      Member& member = members_[static_cast<std::size_t>(i)];
      member.progress = kOpening;
      member.is_open = true;
      member.stream = std::make_unique<FleetStream>(i, this);
      ++open_;
      member.stream->Open(*stubs_.back(), HelloOf(member));
    }
  }

  absl::StatusOr<absl::Time> AwaitProgress(Progress progress, absl::Duration timeout) {
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(AwaitLocked(
        timeout, kProgressNames[progress],
        [progress](const Member& member) { return member.progress >= progress; },
        [this, progress] { return reached_[progress].count; }));
    return reached_[progress].last;
  }

  absl::StatusOr<absl::Time> AwaitEntry(std::int64_t log_number, absl::Duration timeout) {
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(AwaitLocked(
        timeout, absl::StrCat("received control entry ", log_number),
        [log_number](const Member& member) { return member.log_number >= log_number; },
        [this, log_number] { return entry_ == log_number ? received_.count : 0; }));
    return received_.last;
  }

  absl::StatusOr<Beats> Beat(double per_second, absl::Duration duration, absl::Duration timeout) {
    const auto total = static_cast<std::int64_t>(per_second * absl::ToDoubleSeconds(duration));
    const absl::Time begin = absl::Now();
    {
      MutexLock lock(&mu_);
      probes_ = {};
      is_beating_ = true;
    }
    for (std::int64_t sent = 0; sent < total;) {
      const auto due = static_cast<std::int64_t>(
          per_second * absl::ToDoubleSeconds(absl::Now() - begin));
      {
        MutexLock lock(&mu_);
        if (!failure_.ok()) return failure_;
        for (; sent < std::min(due, total); ++sent) {
          const bool is_last_of_its_worker = sent >= total - options_.workers;
          SendBeatLocked(members_[static_cast<std::size_t>(sent % options_.workers)],
                         is_last_of_its_worker || sent % kBeatsForAProbe == 0);
        }
      }
      absl::SleepFor(kPause);
    }
    MutexLock lock(&mu_);
    is_beating_ = false;
    const bool answered = changed_.AwaitFor(&mu_, timeout, [this] {
      return !failure_.ok() || probes_.latencies_ms.size() == probes_.sent.size();
    });
    if (!failure_.ok()) return failure_;
    if (!answered) {
      return absl::DeadlineExceededError(absl::StrCat(
          probes_.latencies_ms.size(), " of ", probes_.sent.size(),
          " heartbeats that the coordinator answers were answered within ",
          absl::FormatDuration(timeout), " of the last; it does not keep up"));
    }
    return Beats{static_cast<double>(total) / absl::ToDoubleSeconds(probes_.last_answer - begin),
                 probes_.latencies_ms};
  }

  void ExpectLoss() {
    MutexLock lock(&mu_);
    loss_is_expected_ = true;
  }

  absl::Status AwaitLost(absl::Duration timeout) {
    MutexLock lock(&mu_);
    return AwaitLocked(
        timeout, "lost its stream", [](const Member& member) { return !member.is_open; },
        [this] { return options_.workers - open_; });
  }

  void OnBytes(int worker, const std::string& bytes) override {
    const absl::Status heard = Hear(worker, bytes);
    if (!heard.ok()) Fail(worker, heard);
  }

  void OnEnd(int worker, const grpc::Status& status) override {
    MutexLock lock(&mu_);
    members_[static_cast<std::size_t>(worker)].is_open = false;
    --open_;
    if (!loss_is_expected_) {
      FailLocked(worker, absl::UnavailableError(absl::StrCat(
                             "its stream ended: ", FromGrpcStatus(status).ToString())));
    }
    changed_.SignalAll();
  }

 private:
  // How many workers got somewhere, and when the last did.
  struct Reached {
    int count = 0;
    absl::Time last;

    void Add() {
      ++count;
      last = absl::Now();
    }
  };

  std::unique_ptr<grpc::GenericStub> Connect() const {
    grpc::ChannelArguments settings;
    settings.SetMaxReceiveMessageSize(kMaxMessageBytes);
    settings.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // Else channels to one address share a connection.
    settings.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(options_.address, credentials_, settings));
  }

  v1::AttendRequest HelloOf(const Member& member) const {
    return ToProto(Hello{.job = options_.job,
                         .worker = member.name,
                         .incarnation = Incarnation(incarnation_),
                         .manifest = FleetModel(),
                         .transport = "gloo",
                         .epoch = Epoch(member.epoch),
                         .log_number = LogNumber(member.log_number)});
  }

  template <typename HasDone, typename Count>
  absl::Status AwaitLocked(absl::Duration timeout, absl::string_view what, HasDone has_done,
                           Count count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const bool all = changed_.AwaitFor(
        &mu_, timeout, [&] { return !failure_.ok() || count() == options_.workers; });
    if (!failure_.ok()) return failure_;
    if (all) return absl::OkStatus();
    const auto first = std::find_if_not(members_.begin(), members_.end(), has_done);
    return absl::DeadlineExceededError(absl::StrCat(
        "within ", absl::FormatDuration(timeout), " ", count(), " of ", options_.workers,
        " workers ", what, first == members_.end() ? "" : absl::StrCat("; not so ", first->name)));
  }

  void Fail(int worker, const absl::Status& why) {
    MutexLock lock(&mu_);
    FailLocked(worker, why);
  }
  void FailLocked(int worker, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!failure_.ok()) return;
    failure_ = absl::Status(
        why.code(), absl::StrCat(members_[static_cast<std::size_t>(worker)].name, ": ",
                                 why.message()));
    changed_.SignalAll();
  }

  absl::Status Hear(int worker, const std::string& bytes) {
    // A Proposal names all workers: it is understood once, and else only compared.
    {
      MutexLock lock(&mu_);
      if (!proposal_bytes_.empty() && bytes == proposal_bytes_) return OnProposal(worker);
    }
    v1::AttendResponse response;
    if (!response.ParseFromString(bytes)) return absl::DataLossError("bytes that are no message");
    MutexLock lock(&mu_);
    Member& member = members_[static_cast<std::size_t>(worker)];
    switch (response.message_case()) {
      case v1::AttendResponse::kWelcome:
        Reach(member, kWelcomed);
        return absl::OkStatus();
      case v1::AttendResponse::kWaiting:
        return absl::OkStatus();
      case v1::AttendResponse::kProposal:
        LOCKSTEP_RETURN_IF_ERROR(Understand(response, bytes));
        return OnProposal(worker);
      case v1::AttendResponse::kEndpoint: {
        v1::AttendRequest ready;
        ready.mutable_ready()->set_epoch(member.epoch);
        ready.mutable_ready()->set_plan_digest(plan_digest_);
        member.stream->Send(ready);
        return absl::OkStatus();
      }
      case v1::AttendResponse::kStart:
        if (response.start().epoch() != member.epoch) {
          return absl::InternalError(absl::StrCat("epoch ", response.start().epoch(),
                                                  " starts, and it is in epoch ", member.epoch));
        }
        Reach(member, kStarted);
        return absl::OkStatus();
      case v1::AttendResponse::kNewEntries:
        return OnEntries(member, response.new_entries());
      case v1::AttendResponse::kAbortEpoch:
        return OnAbort(response.abort_epoch());
      case v1::AttendResponse::MESSAGE_NOT_SET:
        break;
    }
    return absl::InternalError("a message of a kind that is not known");
  }

  void Reach(Member& member, Progress progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    member.progress = progress;
    reached_[progress].Add();
    if (reached_[progress].count == options_.workers) changed_.SignalAll();
  }

  absl::Status Understand(const v1::AttendResponse& response, const std::string& bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    LOCKSTEP_ASSIGN_OR_RETURN(CoordinatorMessage message, FromProto(response));
    Proposal& proposal = std::get<Proposal>(message);
    if (proposal_) {
      return proposal == *proposal_ ? absl::OkStatus()
                                    : absl::InternalError("its Proposal is not that of the others");
    }
    const bool is_as_named = std::ranges::equal(proposal.members, members_, {}, {}, &Member::name);
    if (!is_as_named || proposal.plan.Digest() != plan_digest_) {
      return absl::InternalError("the Proposal has other members, or another plan, than it must");
    }
    proposal_ = std::move(proposal);
    proposal_bytes_ = bytes;
    return absl::OkStatus();
  }

  absl::Status OnProposal(int worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Member& member = members_[static_cast<std::size_t>(worker)];
    member.epoch = proposal_->epoch.value();
    member.log_number = proposal_->log_number.value();
    Reach(member, kProposed);
    if (worker == 0) {
      v1::AttendRequest endpoint;
      endpoint.mutable_endpoint()->set_epoch(member.epoch);
      endpoint.mutable_endpoint()->set_bytes("nobody listens here");
      member.stream->Send(endpoint);
    }
    return absl::OkStatus();
  }

  absl::Status OnEntries(Member& member, const v1::NewEntries& news)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const v1::ControlEntry& entry : news.entries()) {
      if (entry.number() != member.log_number + 1) {
        return absl::InternalError(absl::StrCat("entry ", entry.number(), " follows entry ",
                                                member.log_number));
      }
      member.log_number = entry.number();
      if (entry_ != entry.number()) {
        entry_ = entry.number();
        received_ = {};
      }
      received_.Add();
      v1::AttendRequest applied;
      applied.mutable_applied()->set_epoch(member.epoch);
      applied.mutable_applied()->set_log_number(entry.number());
      applied.mutable_applied()->set_step(step_ + 1);
      member.stream->Send(applied);
    }
    if (received_.count == options_.workers) changed_.SignalAll();
    return absl::OkStatus();
  }

  absl::Status OnAbort(const v1::AbortEpoch& abort) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::int64_t probe = abort.epoch() - kFirstProbe;
    if (probe < 0 || probe >= static_cast<std::int64_t>(probes_.sent.size())) {
      return absl::AbortedError(absl::StrCat("epoch ", abort.epoch(),
                                             " was ended: ", abort.why().message()));
    }
    probes_.last_answer = absl::Now();
    probes_.latencies_ms.push_back(absl::ToDoubleMilliseconds(
        probes_.last_answer - probes_.sent[static_cast<std::size_t>(probe)]));
    if (probes_.latencies_ms.size() == probes_.sent.size()) changed_.SignalAll();
    return absl::OkStatus();
  }

  void SendBeatLocked(Member& member, bool is_probe) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!member.is_open || member.progress < kWelcomed) return;
    v1::AttendRequest request;
    v1::Heartbeat& heartbeat = *request.mutable_heartbeat();
    heartbeat.set_epoch(member.progress == kStarted ? member.epoch : 0);
    if (is_probe) {
      heartbeat.set_epoch(kFirstProbe + static_cast<std::int64_t>(probes_.sent.size()));
      probes_.sent.push_back(absl::Now());
    }
    heartbeat.set_step(step_);
    heartbeat.set_phase(static_cast<std::int32_t>(Phase::kTraining));
    (*heartbeat.mutable_metrics())["loss"] = 0.5;
    (*heartbeat.mutable_metrics())["images_per_second"] = 1000;
    member.stream->Send(request);
  }

  // The lives of all, while Beat() does not send more.
  void BeatOnceASecond() {
    double due = 0;
    std::size_t next = 0;
    absl::Time before = absl::Now();
    MutexLock lock(&mu_);
    while (!changed_.AwaitFor(&mu_, kPause, [this] { return stopping_; })) {
      const absl::Time now = absl::Now();
      due += options_.workers * absl::FDivDuration(now - before, kBeatInterval);
      before = now;
      for (; due >= 1; --due) {
        if (!is_beating_) SendBeatLocked(members_[next], /*is_probe=*/false);
        next = (next + 1) % members_.size();
        if (next == 0) ++step_;
      }
    }
  }

  const FleetOptions options_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const std::uint64_t plan_digest_;
  const std::int64_t incarnation_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;

  Mutex mu_;
  CondVar changed_;
  std::vector<Member> members_;  // guarded by mu_, but for what never changes
  int open_ ABSL_GUARDED_BY(mu_) = 0;
  std::array<Reached, 4> reached_ ABSL_GUARDED_BY(mu_);  // by Progress
  std::optional<Proposal> proposal_ ABSL_GUARDED_BY(mu_);
  std::string proposal_bytes_ ABSL_GUARDED_BY(mu_);
  std::int64_t entry_ ABSL_GUARDED_BY(mu_) = 0;  // the newest that any received
  Reached received_ ABSL_GUARDED_BY(mu_);        // of that entry
  std::int64_t step_ ABSL_GUARDED_BY(mu_) = 0;   // of all alike
  Probes probes_ ABSL_GUARDED_BY(mu_);
  bool is_beating_ ABSL_GUARDED_BY(mu_) = false;
  bool loss_is_expected_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::thread pacer_;
};

absl::StatusOr<std::unique_ptr<Fleet>> Fleet::Create(const FleetOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                            ChannelCredentialsOf(options.tls));
  LOCKSTEP_ASSIGN_OR_RETURN(const ShardPlan plan, PlanShards(FleetModel(), options.workers));
  return std::unique_ptr<Fleet>(new Fleet(
      std::make_unique<Impl>(options, std::move(credentials), plan.Digest())));
}

Fleet::Fleet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Fleet::~Fleet() = default;

void Fleet::Attend() { impl_->Attend(); }
absl::StatusOr<absl::Time> Fleet::AwaitWelcome(absl::Duration timeout) {
  return impl_->AwaitProgress(kWelcomed, timeout);
}
absl::StatusOr<absl::Time> Fleet::AwaitStart(absl::Duration timeout) {
  return impl_->AwaitProgress(kStarted, timeout);
}
absl::StatusOr<absl::Time> Fleet::AwaitEntry(std::int64_t log_number, absl::Duration timeout) {
  return impl_->AwaitEntry(log_number, timeout);
}
absl::StatusOr<Fleet::Beats> Fleet::Beat(double per_second, absl::Duration duration,
                                         absl::Duration timeout) {
  return impl_->Beat(per_second, duration, timeout);
}
void Fleet::ExpectLoss() { impl_->ExpectLoss(); }
absl::Status Fleet::AwaitLost(absl::Duration timeout) { return impl_->AwaitLost(timeout); }

}  // namespace lockstep
