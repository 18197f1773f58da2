#include "coordinator/convert/job_spec.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

template <typename Proto, typename Value>
absl::Status Read(absl::string_view field, bool is_set, const Proto& proto, Value& value) {
  if (!is_set) return absl::OkStatus();
  absl::StatusOr<Value> read = FromProto(proto);
  if (!read.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("spec.", field, ": ", read.status().message()));
  }
  value = *std::move(read);
  return absl::OkStatus();
}

}  // namespace

v1::JobSpec ToProto(const JobSpec& spec) {
  v1::JobSpec proto;
  proto.set_name(spec.name);
  proto.set_min_workers(spec.min_workers);
  proto.set_max_workers(spec.max_workers);
  for (const std::string& worker : spec.workers) proto.add_workers(worker);
  *proto.mutable_join_window() = ToProto(spec.join_window);
  *proto.mutable_lease() = ToProto(spec.lease);
  *proto.mutable_ready_timeout() = ToProto(spec.ready_timeout);
  *proto.mutable_stall_timeout() = ToProto(spec.stall_timeout);
  *proto.mutable_policy() = ToProto(spec.policy);
  proto.set_optimizer_replicas(spec.optimizer_replicas);
  return proto;
}

absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& proto) {
  if (proto.workers_size() > kMaxWorkersPerJob) {
    return absl::InvalidArgumentError(absl::StrCat("spec.workers: has ", proto.workers_size(),
                                                   " entries; at most ", kMaxWorkersPerJob,
                                                   " are allowed"));
  }
  JobSpec spec;
  spec.name = proto.name();
  spec.min_workers = proto.min_workers();
  spec.max_workers = proto.max_workers();
  spec.workers.assign(proto.workers().begin(), proto.workers().end());
  LOCKSTEP_RETURN_IF_ERROR(
      Read("join_window", proto.has_join_window(), proto.join_window(), spec.join_window));
  LOCKSTEP_RETURN_IF_ERROR(Read("lease", proto.has_lease(), proto.lease(), spec.lease));
  LOCKSTEP_RETURN_IF_ERROR(
      Read("ready_timeout", proto.has_ready_timeout(), proto.ready_timeout(), spec.ready_timeout));
  LOCKSTEP_RETURN_IF_ERROR(
      Read("stall_timeout", proto.has_stall_timeout(), proto.stall_timeout(), spec.stall_timeout));
  if (proto.optimizer_replicas() != 0) spec.optimizer_replicas = proto.optimizer_replicas();
  LOCKSTEP_RETURN_IF_ERROR(Read("policy", proto.has_policy(), proto.policy(), spec.policy));
  return spec;
}

}  // namespace lockstep
