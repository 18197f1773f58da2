#include "coordinator/store/record_codec.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/convert/job_spec.h"
#include "lockstep/storage/v1/records.pb.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

using Proto = storage::v1::Record;

void Write(const GenerationStarted& r, Proto& proto) {
  proto.mutable_generation_started()->set_generation(r.generation.value());
}
void Write(const JobCreated& r, Proto& proto) {
  auto& out = *proto.mutable_job_created();
  *out.mutable_spec() = ToProto(r.spec);
  out.set_create_time_unix_nanos(absl::ToUnixNanos(r.create_time));
}
void Write(const JobDeleted& r, Proto& proto) { proto.mutable_job_deleted()->set_job(r.job); }
void Write(const ManifestAgreed& r, Proto& proto) {
  auto& out = *proto.mutable_manifest_agreed();
  out.set_job(r.job);
  *out.mutable_manifest() = ToProto(r.manifest);
}
void Write(const EpochProposed& r, Proto& proto) {
  auto& out = *proto.mutable_epoch_proposed();
  out.set_job(r.job);
  out.set_epoch(r.epoch.value());
  for (const Member& member : r.members) {
    auto& out_member = *out.add_members();
    out_member.set_worker(member.worker);
    out_member.set_incarnation(member.incarnation.value());
  }
}
void Write(const EpochStarted& r, Proto& proto) {
  auto& out = *proto.mutable_epoch_started();
  out.set_job(r.job);
  out.set_epoch(r.epoch.value());
}
void Write(const MemberLeft& r, Proto& proto) {
  auto& out = *proto.mutable_member_left();
  out.set_job(r.job);
  out.set_epoch(r.epoch.value());
  out.set_worker(r.worker);
}
void Write(const EpochEnded& r, Proto& proto) {
  auto& out = *proto.mutable_epoch_ended();
  out.set_job(r.job);
  out.set_epoch(r.epoch.value());
  out.set_why(r.why);
  out.set_regrouped(r.regrouped);
}
void Write(const EntryAppended& r, Proto& proto) {
  auto& out = *proto.mutable_entry_appended();
  out.set_job(r.job);
  *out.mutable_entry() = ToProto(r.entry);
  out.set_author(r.author);
  out.set_reason(r.reason);
  out.set_create_time_unix_nanos(absl::ToUnixNanos(r.create_time));
}
void Write(const EntryApplied& r, Proto& proto) {
  auto& out = *proto.mutable_entry_applied();
  out.set_job(r.job);
  out.set_log_number(r.number.value());
  out.set_worker(r.worker);
  out.set_step(r.step);
}

absl::StatusOr<Record> Read(const storage::v1::JobCreated& in) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobSpec spec, FromProto(in.spec()));
  return JobCreated{std::move(spec), absl::FromUnixNanos(in.create_time_unix_nanos())};
}

absl::StatusOr<Record> Read(const storage::v1::ManifestAgreed& in) {
  LOCKSTEP_ASSIGN_OR_RETURN(Manifest manifest, FromProto(in.manifest()));
  return ManifestAgreed{in.job(), std::move(manifest)};
}

Record Read(const storage::v1::EpochProposed& in) {
  EpochProposed record = {.job = in.job(), .epoch = Epoch(in.epoch())};
  for (const auto& member : in.members()) {
    record.members.push_back({member.worker(), Incarnation(member.incarnation())});
  }
  return record;
}

absl::StatusOr<Record> Read(const storage::v1::EntryAppended& in) {
  LOCKSTEP_ASSIGN_OR_RETURN(ControlEntry entry, FromProto(in.entry()));
  return EntryAppended{in.job(), std::move(entry), in.author(), in.reason(),
                       absl::FromUnixNanos(in.create_time_unix_nanos())};
}

absl::StatusOr<Record> Read(const Proto& proto) {
  switch (proto.record_case()) {
    case Proto::kGenerationStarted:
      return GenerationStarted{Generation(proto.generation_started().generation())};
    case Proto::kJobCreated:
      return Read(proto.job_created());
    case Proto::kJobDeleted:
      return JobDeleted{proto.job_deleted().job()};
    case Proto::kManifestAgreed:
      return Read(proto.manifest_agreed());
    case Proto::kEpochProposed:
      return Read(proto.epoch_proposed());
    case Proto::kEpochStarted:
      return EpochStarted{proto.epoch_started().job(), Epoch(proto.epoch_started().epoch())};
    case Proto::kMemberLeft:
      return MemberLeft{proto.member_left().job(), Epoch(proto.member_left().epoch()),
                        proto.member_left().worker()};
    case Proto::kEpochEnded:
      return EpochEnded{proto.epoch_ended().job(), Epoch(proto.epoch_ended().epoch()),
                        proto.epoch_ended().why(), proto.epoch_ended().regrouped()};
    case Proto::kEntryAppended:
      return Read(proto.entry_appended());
    case Proto::kEntryApplied: {
      const auto& in = proto.entry_applied();
      return EntryApplied{in.job(), LogNumber(in.log_number()), in.worker(), in.step()};
    }
    case Proto::RECORD_NOT_SET:
      break;
  }
  return absl::DataLossError("a record of no kind that this release knows");
}

}  // namespace

std::string EncodeRecord(const Record& record) {
  Proto proto;
  std::visit([&](const auto& r) { Write(r, proto); }, record);
  return proto.SerializeAsString();
}

absl::StatusOr<Record> DecodeRecord(absl::string_view bytes) {
  Proto proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("bytes that are not a record");
  }
  absl::StatusOr<Record> record = Read(proto);
  if (!record.ok()) return absl::DataLossError(record.status().message());
  return record;
}

}  // namespace lockstep
