#include "proto/convert/policy_convert.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "proto/convert/field.h"

namespace lockstep {
namespace {

using convert_internal::AtLeast;
using convert_internal::AtMostEntries;
using convert_internal::InField;
using convert_internal::Name;

}  // namespace

v1::Root ToProto(const Root& root) {
  v1::Root proto;
  if (const auto* by_rank = std::get_if<RootRank>(&root)) proto.set_rank(by_rank->rank);
  if (const auto* by_name = std::get_if<RootWorker>(&root)) proto.set_worker(by_name->worker);
  return proto;
}

v1::Schedule ToProto(const Schedule& schedule) {
  v1::Schedule proto;
  proto.set_at_start(schedule.at_start);
  proto.set_every_forwards(schedule.every_forwards);
  proto.set_every_steps(schedule.every_steps);
  proto.set_before_evaluation(schedule.before_evaluation);
  proto.set_before_checkpoint(schedule.before_checkpoint);
  return proto;
}

v1::SyncRule ToProto(const SyncRule& rule) {
  v1::SyncRule proto;
  proto.set_pattern(rule.pattern);
  if (rule.operation) proto.set_operation(static_cast<v1::Operation>(*rule.operation));
  if (rule.root) *proto.mutable_root() = ToProto(*rule.root);
  if (rule.schedule) *proto.mutable_schedule() = ToProto(*rule.schedule);
  return proto;
}

v1::SyncPolicy ToProto(const SyncPolicy& policy) {
  v1::SyncPolicy proto;
  proto.set_broadcast_buffers(policy.broadcast_buffers);
  proto.mutable_allow_list()->Assign(policy.allow_list.begin(), policy.allow_list.end());
  proto.mutable_ignore_list()->Assign(policy.ignore_list.begin(), policy.ignore_list.end());
  proto.set_operation(static_cast<v1::Operation>(policy.operation));
  *proto.mutable_root() = ToProto(policy.root);
  *proto.mutable_schedule() = ToProto(policy.schedule);
  proto.set_broadcast_parameters_at_start(policy.broadcast_parameters_at_start);
  proto.set_broadcast_parameters_every_steps(policy.broadcast_parameters_every_steps);
  proto.set_check_parameters_every_steps(policy.check_parameters_every_steps);
  proto.set_skip_unchanged(policy.skip_unchanged);
  for (const SyncRule& rule : policy.rules) *proto.add_rules() = ToProto(rule);
  return proto;
}

absl::StatusOr<Root> FromProto(const v1::Root& proto) {
  switch (proto.root_case()) {
    case v1::Root::kRank:
      LOCKSTEP_RETURN_IF_ERROR(AtLeast("rank", proto.rank(), 0));
      return RootRank{proto.rank()};
    case v1::Root::kWorker:
      LOCKSTEP_RETURN_IF_ERROR(Name("worker", proto.worker(), kMaxRootWorkerBytes));
      return RootWorker{proto.worker()};
    case v1::Root::ROOT_NOT_SET:
      break;
  }
  return LowestRank{};
}

absl::StatusOr<Schedule> FromProto(const v1::Schedule& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("every_forwards", proto.every_forwards(), 0));
  LOCKSTEP_RETURN_IF_ERROR(AtLeast("every_steps", proto.every_steps(), 0));
  Schedule schedule;
  if (proto.has_at_start()) schedule.at_start = proto.at_start();
  schedule.every_forwards = proto.every_forwards();
  schedule.every_steps = proto.every_steps();
  schedule.before_evaluation = proto.before_evaluation();
  schedule.before_checkpoint = proto.before_checkpoint();
  return schedule;
}

absl::StatusOr<SyncRule> FromProto(const v1::SyncRule& proto) {
  SyncRule rule = {.pattern = proto.pattern()};
  if (proto.operation() != v1::OPERATION_UNSPECIFIED) {
    rule.operation = static_cast<Operation>(proto.operation());
  }
  if (proto.has_root()) {
    LOCKSTEP_ASSIGN_OR_RETURN(rule.root, InField("root", FromProto(proto.root())));
  }
  if (proto.has_schedule()) {
    LOCKSTEP_ASSIGN_OR_RETURN(rule.schedule, InField("schedule", FromProto(proto.schedule())));
  }
  return rule;
}

absl::StatusOr<SyncPolicy> FromProto(const v1::SyncPolicy& proto) {
  LOCKSTEP_RETURN_IF_ERROR(AtMostEntries("allow_list", proto.allow_list_size(), kMaxPatterns));
  LOCKSTEP_RETURN_IF_ERROR(AtMostEntries("ignore_list", proto.ignore_list_size(), kMaxPatterns));
  LOCKSTEP_RETURN_IF_ERROR(AtMostEntries("rules", proto.rules_size(), kMaxRules));
  SyncPolicy policy;
  if (proto.has_broadcast_buffers()) policy.broadcast_buffers = proto.broadcast_buffers();
  policy.allow_list.assign(proto.allow_list().begin(), proto.allow_list().end());
  policy.ignore_list.assign(proto.ignore_list().begin(), proto.ignore_list().end());
  if (proto.operation() != v1::OPERATION_UNSPECIFIED) {
    policy.operation = static_cast<Operation>(proto.operation());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(policy.root, InField("root", FromProto(proto.root())));
  if (proto.has_schedule()) {
    LOCKSTEP_ASSIGN_OR_RETURN(policy.schedule, InField("schedule", FromProto(proto.schedule())));
  }
  if (proto.has_broadcast_parameters_at_start()) {
    policy.broadcast_parameters_at_start = proto.broadcast_parameters_at_start();
  }
  policy.broadcast_parameters_every_steps = proto.broadcast_parameters_every_steps();
  policy.check_parameters_every_steps = proto.check_parameters_every_steps();
  policy.skip_unchanged = proto.skip_unchanged();
  for (int i = 0; i < proto.rules_size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(SyncRule rule, InField(absl::StrCat("rules[", i, "]"),
                                                     FromProto(proto.rules(i))));
    policy.rules.push_back(std::move(rule));
  }
  LOCKSTEP_RETURN_IF_ERROR(Validate(policy));
  return policy;
}

}  // namespace lockstep
