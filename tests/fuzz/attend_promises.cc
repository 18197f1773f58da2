// What workers say on their streams, to the state machine of the coordinator whose store never
// fails. Each line is an event:
//
//   job name: "j" min_workers: 2     CreateJob, with that v1::JobSpec in text format
//   1 t hello { job: "j" ... }       stream 1 (0 to 7) says a v1::AttendRequest, here in text
//                                    format; j and x: see message_text.h
//   1 t! ready { }                   as it, with the epoch and the plan's digest that are right
//   break 1                          stream 1 breaks; the next message opens another one
//   later 250                        so many milliseconds pass, at most an hour
//   restart                          the coordinator starts again on what it has stored
//   policy ignore_list: "queue"      UpdateSyncPolicy of the first job
//   sync, checkpoint, drain w1, delete: requests for the first job
//
// What is malformed is refused with InvalidArgument. Whatever is said, the core's invariants hold,
// workers can read what they are sent, streams end once, records survive their encoding, and their
// fold is the state that lived.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "coordinator/convert/job_spec.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/core/durable_text.h"
#include "coordinator/rpc/view_convert.h"
#include "coordinator/store/record_codec.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/membership.pb.h"
#include "proto/convert/convert.h"
#include "tests/fuzz/cluster_promises.h"
#include "tests/fuzz/message_text.h"
#include "tests/fuzz/promises.h"

namespace lockstep {
namespace {

constexpr int kMaxEvents = 300;  // keeps one run short
constexpr std::int64_t kLongestMillis = 3'600'000;

class AttendRun {
 public:
  absl::Status Start() {
    absl::StatusOr<CoordinatorFsm> fsm = CoordinatorFsm::Recover(records_, now_);
    LOCKSTEP_RETURN_IF_ERROR(
        Holds(fsm.ok(), "what was stored can be recovered", fsm.status().ToString()));
    LOCKSTEP_RETURN_IF_ERROR(
        Holds(!fsm_ || DurableText(fsm->state()) == DurableText(fsm_->state()),
              "the fold of what was stored is what lived", DurableText(fsm->state())));
    fsm_ = *std::move(fsm);
    open_.clear();
    return Take(fsm_->Begin());
  }

  absl::Status Do(absl::string_view line) {
    const std::pair<absl::string_view, absl::string_view> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    const auto [what, rest] = words;
    std::int64_t number = 0;
    if (what == "restart") return Start();
    if (what == "later") return Later(absl::SimpleAtoi(rest, &number) ? number : 1);
    if (what == "break") return absl::SimpleAtoi(rest, &number) ? Break(number) : absl::OkStatus();
    if (what == "job") return Create(rest);
    if (absl::SimpleAtoi(what, &number)) return Say(number & 7, rest);
    if (state().jobs.empty()) return absl::OkStatus();
    const std::string job = state().jobs.begin()->first;
    if (what == "policy") return Update(job, rest);
    if (what == "sync") return Ask(SyncNow{job, {.parameters = !rest.empty()}});
    if (what == "checkpoint") return Ask(CheckpointNow{job});
    if (what == "drain") return Ask(DrainWorker{job, std::string(rest), /*allow_waiting=*/true});
    if (what == "delete") return Ask(DeleteJob{job});
    return absl::OkStatus();
  }

  Reached reached() const {
    if (welcomed_) return Reached::kChecked;
    return said_ ? Reached::kRefused : Reached::kUnread;
  }

 private:
  const ClusterState& state() const { return fsm_->state(); }

  absl::Status Step(const Event& event) { return Take(fsm_->Step(now_, event)); }

  absl::Status Later(std::int64_t millis) {
    now_ = now_ + absl::Milliseconds(std::clamp<std::int64_t>(millis, 0, kLongestMillis));
    if (!wake_at_ || *wake_at_ > now_) return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(Step(Tick{}));
    return Holds(!wake_at_ || *wake_at_ > now_, "a Tick leaves no work undone", "");
  }

  absl::Status Ask(Request request) {
    const RequestId id(++requests_);
    const Effects effects = fsm_->Step(
        now_, RequestReceived{id, absl::FromUnixSeconds(requests_), std::move(request)});
    LOCKSTEP_RETURN_IF_ERROR(Holds(effects.answers.size() == 1 && effects.answers[0].id == id,
                                   "a request has one answer", ""));
    LOCKSTEP_RETURN_IF_ERROR(CheckText(effects.answers[0].reply.status()));
    return Take(effects);
  }

  static absl::Status CheckText(const absl::Status& why) {
    return Holds(WellFormedPrefix(why.message()) == why.message().size(), "errors are UTF-8",
                 why.message());
  }

  absl::Status Create(absl::string_view text) {
    v1::JobSpec message;
    if (!ReadMessage('t', text, &message)) return absl::OkStatus();
    absl::StatusOr<JobSpec> spec = FromProto(message);
    LOCKSTEP_RETURN_IF_ERROR(
        IsOkOr({absl::StatusCode::kInvalidArgument}, spec.status(), "FromProto(JobSpec)"));
    return spec.ok() ? Ask(CreateJob{*std::move(spec)}) : absl::OkStatus();
  }

  absl::Status Update(const std::string& job, absl::string_view text) {
    v1::SyncPolicy message;
    if (!ReadMessage('t', text, &message)) return absl::OkStatus();
    absl::StatusOr<SyncPolicy> policy = FromProto(message);
    if (!policy.ok()) return absl::OkStatus();
    return Ask(UpdateSyncPolicy{.job = job, .policy = *std::move(policy), .allow_unmatched = true});
  }

  absl::Status Break(std::int64_t number) {
    const auto stream = open_.find(number & 7);
    if (stream == open_.end()) return absl::OkStatus();
    const StreamId broken = stream->second;
    open_.erase(stream);
    return Step(StreamBroke{broken});
  }

  // `text`: form, `!` or not, and the message.
  absl::Status Say(std::int64_t number, absl::string_view text) {
    if (text.empty()) return absl::OkStatus();
    const bool is_right = text.substr(1, 1) == "!";
    v1::AttendRequest proto;
    if (!ReadMessage(text.front(), text.substr(is_right ? 2 : 1), &proto)) return absl::OkStatus();
    said_ = true;
    if (is_right) SetRight(proto);
    absl::StatusOr<WorkerMessage> message = FromProto(proto);
    LOCKSTEP_RETURN_IF_ERROR(IsOkOr({absl::StatusCode::kInvalidArgument}, message.status(),
                                    "FromProto(AttendRequest)"));
    if (!message.ok()) return Break(number);
    if (!open_.contains(number)) open_[number] = StreamId(++opened_);
    return Step(MessageReceived{open_[number], *std::move(message)});
  }

  void SetRight(v1::AttendRequest& proto) const {
    for (const auto& [name, job] : state().jobs) {
      if (!job.epoch) continue;
      const std::int64_t epoch = job.epoch->id.value();
      if (proto.has_hello()) proto.mutable_hello()->set_epoch(epoch);
      if (proto.has_heartbeat()) proto.mutable_heartbeat()->set_epoch(epoch);
      if (proto.has_endpoint()) proto.mutable_endpoint()->set_epoch(epoch);
      if (proto.has_ready()) {
        proto.mutable_ready()->set_epoch(epoch);
        proto.mutable_ready()->set_plan_digest(job.epoch->plan.Digest());
      }
      if (proto.has_applied()) proto.mutable_applied()->set_epoch(epoch);
      if (proto.has_leave()) proto.mutable_leave()->set_epoch(epoch);
      if (proto.has_epoch_stopped()) proto.mutable_epoch_stopped()->set_epoch(epoch);
      return;
    }
  }

  absl::Status Take(const Effects& effects) {
    for (const Record& record : effects.persist) LOCKSTEP_RETURN_IF_ERROR(Store(record));
    for (const Outgoing& out : effects.send) LOCKSTEP_RETURN_IF_ERROR(Send(out));
    for (const EndStream& end : effects.end) {
      LOCKSTEP_RETURN_IF_ERROR(CheckText(end.why));
      const std::size_t ended =
          std::erase_if(open_, [&](const auto& open) { return open.second == end.stream; });
      LOCKSTEP_RETURN_IF_ERROR(Holds(ended == 1, "a stream ends once", end.why.ToString()));
    }
    wake_at_ = effects.wake_at;
    LOCKSTEP_RETURN_IF_ERROR(CheckClusterState(state()));
    return CheckViews();
  }

  absl::Status Store(const Record& record) {
    absl::StatusOr<Record> stored = DecodeRecord(EncodeRecord(record));
    LOCKSTEP_RETURN_IF_ERROR(
        Holds(stored.ok(), "what is stored can be read", stored.status().ToString()));
    LOCKSTEP_RETURN_IF_ERROR(Holds(*stored == record, "what is read is what was stored",
                                   absl::StrCat("a record of kind ", record.index())));
    records_.push_back(*std::move(stored));
    return absl::OkStatus();
  }

  absl::Status Send(const Outgoing& out) {
    const bool is_open = std::ranges::any_of(
        open_, [&](const auto& open) { return open.second == out.stream; });
    LOCKSTEP_RETURN_IF_ERROR(Holds(is_open, "nothing is sent to a stream that is over",
                                   absl::StrCat(out.stream.value())));
    v1::AttendResponse received;
    LOCKSTEP_RETURN_IF_ERROR(
        Holds(received.ParseFromString(ToProto(*out.message).SerializeAsString()),
              "what is sent can be received", absl::StrCat(out.message->index())));
    const absl::Status read = FromProto(received).status();
    welcomed_ = welcomed_ || std::holds_alternative<Welcome>(*out.message);
    return Holds(read.ok(), "what is sent can be read", read.ToString());
  }

  // Of what workers claim.
  absl::Status CheckViews() const {
    for (const auto& [name, job] : state().jobs) {
      std::string wire;
      LOCKSTEP_RETURN_IF_ERROR(
          Holds(ViewOfAll(job).SerializeToString(&wire), "the job can be shown", name));
      const absl::StatusOr<v1::GetShardPlanResponse> plan = ViewOfShardPlan(job);
      LOCKSTEP_RETURN_IF_ERROR(
          Holds(plan.ok() == job.epoch.has_value(), "an epoch's plan can be shown", name));
      if (!plan.ok()) continue;
      for (const v1::ReplicaCost& cost : plan->replica_costs()) {
        LOCKSTEP_RETURN_IF_ERROR(Holds(cost.step_bytes() >= 0 && cost.optimizer_bytes() >= 0,
                                       "costs are no less than nothing", cost.ShortDebugString()));
      }
    }
    return absl::OkStatus();
  }

  std::optional<CoordinatorFsm> fsm_;
  MonoTime now_;
  std::optional<MonoTime> wake_at_;
  std::int64_t requests_ = 0, opened_ = 0;
  std::map<std::int64_t, StreamId> open_;  // by the input's number
  std::vector<Record> records_;
  bool said_ = false, welcomed_ = false;
};

}  // namespace

absl::StatusOr<Reached> CheckPromises(absl::string_view bytes) {
  AttendRun run;
  LOCKSTEP_RETURN_IF_ERROR(run.Start());
  int events = 0;
  for (const absl::string_view line : absl::StrSplit(bytes, '\n', absl::SkipEmpty())) {
    if (++events > kMaxEvents) break;
    LOCKSTEP_RETURN_IF_ERROR(run.Do(line));
  }
  LOCKSTEP_RETURN_IF_ERROR(run.Start());
  return run.reached();
}

}  // namespace lockstep
