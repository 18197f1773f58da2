#include "proto/convert/messages_convert.h"

#include <utility>

#include "common/base/status_macros.h"
#include "proto/convert/field.h"
#include "proto/convert/model_convert.h"
#include "proto/convert/policy_convert.h"
#include "proto/convert/status_message.h"
#include "proto/convert/time_convert.h"

namespace lockstep {
namespace {

using convert_internal::AtLeast;
using convert_internal::AtMostEntries;
using convert_internal::BadField;
using convert_internal::InField;
using convert_internal::Name;
using convert_internal::Present;

// One overload per message: writes the value into the message's oneof.

void Put(const Hello& hello, v1::AttendRequest& to) {
  v1::Hello& proto = *to.mutable_hello();
  proto.set_job(hello.job);
  proto.set_worker(hello.worker);
  proto.set_incarnation(hello.incarnation.value());
  *proto.mutable_manifest() = ToProto(hello.manifest);
  proto.set_transport(hello.transport);
  proto.set_epoch(hello.epoch.value());
  proto.set_log_number(hello.log_number.value());
}

void Put(const Heartbeat& heartbeat, v1::AttendRequest& to) {
  v1::Heartbeat& proto = *to.mutable_heartbeat();
  proto.set_epoch(heartbeat.epoch.value());
  proto.set_step(heartbeat.step);
  proto.set_phase(static_cast<std::int32_t>(heartbeat.phase));
  proto.mutable_metrics()->insert(heartbeat.metrics.begin(), heartbeat.metrics.end());
  *proto.mutable_sync() = ToProto(heartbeat.sync);
}

template <typename Message>
void Put(const Endpoint& endpoint, Message& to) {
  v1::Endpoint& proto = *to.mutable_endpoint();
  proto.set_epoch(endpoint.epoch.value());
  proto.set_bytes(endpoint.bytes);
}

void Put(const Ready& ready, v1::AttendRequest& to) {
  v1::Ready& proto = *to.mutable_ready();
  proto.set_epoch(ready.epoch.value());
  proto.set_plan_digest(ready.plan_digest);
  proto.set_optimizer_bytes(ready.optimizer_bytes);
}

void Put(const Applied& applied, v1::AttendRequest& to) {
  v1::Applied& proto = *to.mutable_applied();
  proto.set_epoch(applied.epoch.value());
  proto.set_log_number(applied.number.value());
  proto.set_step(applied.step);
}

void Put(const Leave& leave, v1::AttendRequest& to) {
  v1::Leave& proto = *to.mutable_leave();
  proto.set_epoch(leave.epoch.value());
  *proto.mutable_why() = ToProto(leave.why);
}

void Put(const EpochStopped& stopped, v1::AttendRequest& to) {
  v1::EpochStopped& proto = *to.mutable_epoch_stopped();
  proto.set_epoch(stopped.epoch.value());
  proto.set_step(stopped.step);
  *proto.mutable_why() = ToProto(stopped.why);
}

void Put(const Welcome& welcome, v1::AttendResponse& to) {
  v1::Welcome& proto = *to.mutable_welcome();
  proto.set_generation(welcome.generation.value());
  *proto.mutable_lease() = ToProto(welcome.lease);
  *proto.mutable_heartbeat_interval() = ToProto(welcome.heartbeat_interval);
}

void Put(const Waiting& waiting, v1::AttendResponse& to) {
  to.mutable_waiting()->set_detail(SendableMessage(waiting.detail));
}

void Put(const Proposal& proposal, v1::AttendResponse& to) {
  v1::Proposal& proto = *to.mutable_proposal();
  proto.set_epoch(proposal.epoch.value());
  proto.mutable_members()->Assign(proposal.members.begin(), proposal.members.end());
  *proto.mutable_plan() = ToProto(proposal.plan);
  proto.set_log_number(proposal.log_number.value());
  proto.set_revision(proposal.revision.value());
  *proto.mutable_policy() = ToProto(proposal.policy);
  *proto.mutable_ready_timeout() = ToProto(proposal.ready_timeout);
  proto.set_optimizer_replicas(proposal.optimizer_replicas);
  proto.set_missed(proposal.missed.value());
}

void Put(const Start& start, v1::AttendResponse& to) {
  to.mutable_start()->set_epoch(start.epoch.value());
}

void Put(const NewEntries& entries, v1::AttendResponse& to) {
  v1::NewEntries& proto = *to.mutable_new_entries();
  for (const ControlEntry& entry : entries.entries) *proto.add_entries() = ToProto(entry);
}

void Put(const AbortEpoch& abort, v1::AttendResponse& to) {
  v1::AbortEpoch& proto = *to.mutable_abort_epoch();
  proto.set_epoch(abort.epoch.value());
  *proto.mutable_why() = ToProto(abort.why);
}

void Put(const PolicyRevised& revised, v1::ControlEntry& to) {
  v1::PolicyRevised& proto = *to.mutable_policy_revised();
  proto.set_revision(revised.revision.value());
  *proto.mutable_policy() = ToProto(revised.policy);
}

void Put(const SyncOnce& once, v1::ControlEntry& to) {
  v1::SyncOnce& proto = *to.mutable_sync_once();
  proto.set_buffers(once.buffers);
  proto.set_parameters(once.parameters);
  if (once.root) *proto.mutable_root() = ToProto(*once.root);
}

void Put(const Regroup& regroup, v1::ControlEntry& to) {
  to.mutable_regroup()->set_drain(regroup.drain);
}

void Put(const CheckpointOnce&, v1::ControlEntry& to) { to.mutable_checkpoint_once(); }

// One overload per message of a oneof; errors name the field within it.

absl::StatusOr<Hello> Get(const v1::Hello& proto) {
  LOCKSTEP_RETURN_IF_ERROR(Name("job", proto.job(), kMaxJobNameBytes));
  LOCKSTEP_RETURN_IF_ERROR(Name("worker", proto.worker(), kMaxWorkerNameBytes));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("incarnation", proto.incarnation(), 1));
  LOCKSTEP_RETURN_IF_ERROR(Present("manifest", proto.has_manifest()));
  LOCKSTEP_RETURN_IF_ERROR(Name("transport", proto.transport(), kMaxTransportNameBytes));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("epoch", proto.epoch(), 0));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("log_number", proto.log_number(), 0));
  LOCKSTEP_ASSIGN_OR_RETURN(Manifest manifest, InField("manifest", FromProto(proto.manifest())));
  return Hello{.job = proto.job(),
               .worker = proto.worker(),
               .incarnation = Incarnation(proto.incarnation()),
               .manifest = std::move(manifest),
               .transport = proto.transport(),
               .epoch = Epoch(proto.epoch()),
               .log_number = LogNumber(proto.log_number())};
}

absl::StatusOr<SyncCounters> Get(const v1::SyncCounters& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("syncs", proto.syncs(), 0));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("transfers", proto.transfers(), 0));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("bytes", proto.bytes(), 0));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("skipped_bytes", proto.skipped_bytes(), 0));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("last_transfers", proto.last_transfers(), 0));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("last_bytes", proto.last_bytes(), 0));
  return SyncCounters{.syncs = proto.syncs(),
                      .transfers = proto.transfers(),
                      .bytes = proto.bytes(),
                      .skipped_bytes = proto.skipped_bytes(),
                      .last_transfers = proto.last_transfers(),
                      .last_bytes = proto.last_bytes()};
}

absl::StatusOr<Heartbeat> Get(const v1::Heartbeat& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("epoch", proto.epoch(), 0));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("step", proto.step(), 0));
  Heartbeat heartbeat{.epoch = Epoch(proto.epoch()), .step = proto.step()};
  if (proto.phase() < 0 || proto.phase() > static_cast<int>(Phase::kEvaluating)) {
    return BadField("phase", absl::StrCat("is the unknown number ", proto.phase()));
  }
  if (proto.phase() != 0) heartbeat.phase = static_cast<Phase>(proto.phase());
  LOCKSTEP_RETURN_IF_ERROR(
      AtMostEntries("metrics", static_cast<std::int64_t>(proto.metrics().size()), kMaxMetrics));
  for (const auto& [name, value] : proto.metrics()) {
    LOCKSTEP_RETURN_IF_ERROR(Name("metrics.key", name, kMaxMetricNameBytes));
    heartbeat.metrics.emplace(name, value);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(heartbeat.sync, InField("sync", Get(proto.sync())));
  return heartbeat;
}

absl::StatusOr<Endpoint> Get(const v1::Endpoint& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("epoch", proto.epoch(), 1));
  LOCKSTEP_RETURN_IF_ERROR(Present("bytes", !proto.bytes().empty()));
  if (proto.bytes().size() > kMaxEndpointBytes) {
    return BadField("bytes", absl::StrCat("has ", proto.bytes().size(), " bytes; at most ",
                                          kMaxEndpointBytes, " are allowed"));
  }
  return Endpoint{.epoch = Epoch(proto.epoch()), .bytes = proto.bytes()};
}

absl::StatusOr<Ready> Get(const v1::Ready& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("epoch", proto.epoch(), 1));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("optimizer_bytes", proto.optimizer_bytes(), 0));
  return Ready{.epoch = Epoch(proto.epoch()),
               .plan_digest = proto.plan_digest(),
               .optimizer_bytes = proto.optimizer_bytes()};
}

absl::StatusOr<Applied> Get(const v1::Applied& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("epoch", proto.epoch(), 1));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("log_number", proto.log_number(), 1));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("step", proto.step(), 0));
  return Applied{.epoch = Epoch(proto.epoch()),
                 .number = LogNumber(proto.log_number()),
                 .step = proto.step()};
}

absl::StatusOr<Leave> Get(const v1::Leave& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("epoch", proto.epoch(), 0));
  return Leave{.epoch = Epoch(proto.epoch()), .why = FromProto(proto.why())};
}

absl::StatusOr<EpochStopped> Get(const v1::EpochStopped& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("epoch", proto.epoch(), 1));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("step", proto.step(), 0));
  return EpochStopped{.epoch = Epoch(proto.epoch()),
                      .step = proto.step(),
                      .why = FromProto(proto.why())};
}

// A duration that must be there and be positive.
absl::StatusOr<absl::Duration> Positive(absl::string_view field, bool is_present,
                                        const google::protobuf::Duration& proto) {
  LOCKSTEP_RETURN_IF_ERROR(Present(field, is_present));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Duration duration, InField(field, FromProto(proto)));
  if (duration > absl::ZeroDuration()) return duration;
  return BadField(field, absl::StrCat("is ", absl::FormatDuration(duration),
                                      "; expected a positive duration"));
}

absl::StatusOr<Welcome> Get(const v1::Welcome& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("generation", proto.generation(), 1));
  Welcome welcome{.generation = Generation(proto.generation())};
  LOCKSTEP_ASSIGN_OR_RETURN(welcome.lease, Positive("lease", proto.has_lease(), proto.lease()));
  LOCKSTEP_ASSIGN_OR_RETURN(
      welcome.heartbeat_interval,
      Positive("heartbeat_interval", proto.has_heartbeat_interval(), proto.heartbeat_interval()));
  return welcome;
}

absl::StatusOr<Waiting> Get(const v1::Waiting& proto) {
  return Waiting{.detail = SendableMessage(proto.detail())};
}

absl::StatusOr<Proposal> Get(const v1::Proposal& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("epoch", proto.epoch(), 1));
  LOCKSTEP_RETURN_IF_ERROR(Present("members", proto.members_size() > 0));
  LOCKSTEP_RETURN_IF_ERROR(AtMostEntries("members", proto.members_size(), kMaxWorldSize));
  for (int i = 0; i < proto.members_size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        Name(absl::StrCat("members[", i, "]"), proto.members(i), kMaxWorkerNameBytes));
  }
  LOCKSTEP_RETURN_IF_ERROR(Present("plan", proto.has_plan()));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("log_number", proto.log_number(), 0));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("revision", proto.revision(), 1));
  LOCKSTEP_RETURN_IF_ERROR(Present("policy", proto.has_policy()));
  if (proto.plan().shards_size() != proto.members_size()) {
    return BadField("plan.shards", absl::StrCat("has ", proto.plan().shards_size(),
                                                " entries for ", proto.members_size(),
                                                " members; expected one for each"));
  }
  Proposal proposal{.epoch = Epoch(proto.epoch()),
                    .members = {proto.members().begin(), proto.members().end()},
                    .log_number = LogNumber(proto.log_number()),
                    .revision = Revision(proto.revision())};
  LOCKSTEP_ASSIGN_OR_RETURN(proposal.plan, InField("plan", FromProto(proto.plan())));
  LOCKSTEP_ASSIGN_OR_RETURN(proposal.policy, InField("policy", FromProto(proto.policy())));
  LOCKSTEP_ASSIGN_OR_RETURN(
      proposal.ready_timeout,
      Positive("ready_timeout", proto.has_ready_timeout(), proto.ready_timeout()));
  if (proto.optimizer_replicas() < 0 || proto.optimizer_replicas() > kMaxOptimizerReplicas) {
    return BadField("optimizer_replicas", absl::StrCat("is ", proto.optimizer_replicas(),
                                                       "; expected 1 to ",
                                                       kMaxOptimizerReplicas));
  }
  if (proto.optimizer_replicas() > 0) proposal.optimizer_replicas = proto.optimizer_replicas();
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("missed", proto.missed(), 0));
  proposal.missed = Epoch(proto.missed());
  return proposal;
}

absl::StatusOr<Start> Get(const v1::Start& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("epoch", proto.epoch(), 1));
  return Start{.epoch = Epoch(proto.epoch())};
}

absl::StatusOr<NewEntries> Get(const v1::NewEntries& proto) {
  LOCKSTEP_RETURN_IF_ERROR(Present("entries", proto.entries_size() > 0));
  LOCKSTEP_RETURN_IF_ERROR(AtMostEntries("entries", proto.entries_size(), kMaxEntriesPerMessage));
  NewEntries entries;
  entries.entries.reserve(proto.entries_size());
  for (int i = 0; i < proto.entries_size(); ++i) {
    const std::string field = absl::StrCat("entries[", i, "]");
    LOCKSTEP_ASSIGN_OR_RETURN(ControlEntry entry, InField(field, FromProto(proto.entries(i))));
    if (i > 0 && entry.number != entries.entries.back().number.next()) {
      return BadField(field + ".number",
                      absl::StrCat("is ", entry.number.value(), " behind ",
                                   entries.entries.back().number.value(),
                                   "; expected consecutive numbers"));
    }
    entries.entries.push_back(std::move(entry));
  }
  return entries;
}

absl::StatusOr<AbortEpoch> Get(const v1::AbortEpoch& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("epoch", proto.epoch(), 1));
  LOCKSTEP_RETURN_IF_ERROR(Present("why", proto.has_why()));
  return AbortEpoch{.epoch = Epoch(proto.epoch()), .why = FromProto(proto.why())};
}

absl::StatusOr<PolicyRevised> Get(const v1::PolicyRevised& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("revision", proto.revision(), 1));
  LOCKSTEP_RETURN_IF_ERROR(Present("policy", proto.has_policy()));
  LOCKSTEP_ASSIGN_OR_RETURN(SyncPolicy policy, InField("policy", FromProto(proto.policy())));
  return PolicyRevised{.revision = Revision(proto.revision()), .policy = std::move(policy)};
}

absl::StatusOr<SyncOnce> Get(const v1::SyncOnce& proto) {
  SyncOnce once = {.buffers = proto.buffers(), .parameters = proto.parameters()};
  if (proto.has_root()) {
    LOCKSTEP_ASSIGN_OR_RETURN(once.root, InField("root", FromProto(proto.root())));
  }
  return once;
}

absl::StatusOr<Regroup> Get(const v1::Regroup& proto) {
  if (!proto.drain().empty()) {
    LOCKSTEP_RETURN_IF_ERROR(Name("drain", proto.drain(), kMaxWorkerNameBytes));
  }
  return Regroup{.drain = proto.drain()};
}

absl::StatusOr<CheckpointOnce> Get(const v1::CheckpointOnce&) { return CheckpointOnce{}; }

// The member of a oneof as a value of the variant that stands for the oneof.
template <typename Variant, typename Proto>
absl::StatusOr<Variant> Member(absl::string_view field, const Proto& proto) {
  auto value = Get(proto);
  if (!value.ok()) return InField(field, value.status());
  return Variant(*std::move(value));
}

}  // namespace

v1::SyncCounters ToProto(const SyncCounters& counters) {
  v1::SyncCounters proto;
  proto.set_syncs(counters.syncs);
  proto.set_transfers(counters.transfers);
  proto.set_bytes(counters.bytes);
  proto.set_skipped_bytes(counters.skipped_bytes);
  proto.set_last_transfers(counters.last_transfers);
  proto.set_last_bytes(counters.last_bytes);
  return proto;
}

v1::ControlEntry ToProto(const ControlEntry& entry) {
  v1::ControlEntry proto;
  proto.set_number(entry.number.value());
  std::visit([&](const auto& decision) { Put(decision, proto); }, entry.decision);
  return proto;
}

v1::AttendRequest ToProto(const WorkerMessage& message) {
  v1::AttendRequest proto;
  std::visit([&](const auto& value) { Put(value, proto); }, message);
  return proto;
}

v1::AttendResponse ToProto(const CoordinatorMessage& message) {
  v1::AttendResponse proto;
  std::visit([&](const auto& value) { Put(value, proto); }, message);
  return proto;
}

absl::StatusOr<ControlEntry> FromProto(const v1::ControlEntry& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("number", proto.number(), 1));
  const auto decision = [&]() -> absl::StatusOr<Decision> {
    switch (proto.decision_case()) {
      case v1::ControlEntry::kPolicyRevised:
        return Member<Decision>("policy_revised", proto.policy_revised());
      case v1::ControlEntry::kSyncOnce:
        return Member<Decision>("sync_once", proto.sync_once());
      case v1::ControlEntry::kRegroup:
        return Member<Decision>("regroup", proto.regroup());
      case v1::ControlEntry::kCheckpointOnce:
        return Member<Decision>("checkpoint_once", proto.checkpoint_once());
      case v1::ControlEntry::DECISION_NOT_SET:
        break;
    }
    return BadField("decision", "is missing or of a kind unknown here");
  };
  ControlEntry entry{.number = LogNumber(proto.number())};
  LOCKSTEP_ASSIGN_OR_RETURN(entry.decision, decision());
  return entry;
}

absl::StatusOr<WorkerMessage> FromProto(const v1::AttendRequest& proto) {
  switch (proto.message_case()) {
    case v1::AttendRequest::kHello:
      return Member<WorkerMessage>("hello", proto.hello());
    case v1::AttendRequest::kHeartbeat:
      return Member<WorkerMessage>("heartbeat", proto.heartbeat());
    case v1::AttendRequest::kEndpoint:
      return Member<WorkerMessage>("endpoint", proto.endpoint());
    case v1::AttendRequest::kReady:
      return Member<WorkerMessage>("ready", proto.ready());
    case v1::AttendRequest::kApplied:
      return Member<WorkerMessage>("applied", proto.applied());
    case v1::AttendRequest::kLeave:
      return Member<WorkerMessage>("leave", proto.leave());
    case v1::AttendRequest::kEpochStopped:
      return Member<WorkerMessage>("epoch_stopped", proto.epoch_stopped());
    case v1::AttendRequest::MESSAGE_NOT_SET:
      break;
  }
  return BadField("message", "is missing or of a kind unknown here");
}

absl::StatusOr<CoordinatorMessage> FromProto(const v1::AttendResponse& proto) {
  switch (proto.message_case()) {
    case v1::AttendResponse::kWelcome:
      return Member<CoordinatorMessage>("welcome", proto.welcome());
    case v1::AttendResponse::kWaiting:
      return Member<CoordinatorMessage>("waiting", proto.waiting());
    case v1::AttendResponse::kProposal:
      return Member<CoordinatorMessage>("proposal", proto.proposal());
    case v1::AttendResponse::kEndpoint:
      return Member<CoordinatorMessage>("endpoint", proto.endpoint());
    case v1::AttendResponse::kStart:
      return Member<CoordinatorMessage>("start", proto.start());
    case v1::AttendResponse::kNewEntries:
      return Member<CoordinatorMessage>("new_entries", proto.new_entries());
    case v1::AttendResponse::kAbortEpoch:
      return Member<CoordinatorMessage>("abort_epoch", proto.abort_epoch());
    case v1::AttendResponse::MESSAGE_NOT_SET:
      break;
  }
  return BadField("message", "is missing or of a kind unknown here");
}

}  // namespace lockstep
