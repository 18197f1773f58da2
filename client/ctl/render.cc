#include "client/ctl/render.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/ctl/policy_words.h"
#include "client/ctl/progress.h"
#include "client/ctl/table.h"
#include "google/protobuf/util/json_util.h"

namespace lockstep {
namespace {

constexpr Table::Align kRight = Table::Align::kRight;

std::string RenderTime(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(time.seconds()),
                          absl::UTCTimeZone());
}

std::string RenderPatterns(const google::protobuf::RepeatedPtrField<std::string>& patterns) {
  return absl::StrJoin(patterns, ", ");
}

v1::Schedule ScheduleOf(const v1::SyncPolicy& policy) {
  return policy.has_schedule() ? policy.schedule() : DefaultSchedule();
}

std::string RenderParameters(const v1::SyncPolicy& policy) {
  std::vector<std::string> when;
  if (!policy.has_broadcast_parameters_at_start() || policy.broadcast_parameters_at_start()) {
    when.push_back("broadcast at start");
  }
  if (policy.broadcast_parameters_every_steps() > 0) {
    when.push_back(absl::StrCat("broadcast every ", policy.broadcast_parameters_every_steps(),
                                " steps"));
  }
  if (policy.check_parameters_every_steps() > 0) {
    when.push_back(absl::StrCat("compared every ", policy.check_parameters_every_steps(),
                                " steps"));
  }
  return when.empty() ? "not broadcast" : absl::StrJoin(when, ", ");
}

bool IsOn(const v1::SyncPolicy& policy) {
  return !policy.has_broadcast_buffers() || policy.broadcast_buffers();
}

std::string EffectiveSince(const v1::SyncPolicyRevision& revision) {
  if (revision.state() != v1::SyncPolicyRevision::STATE_EFFECTIVE) return "-";
  return absl::StrCat(revision.effective_step());
}

// "name:    value" lines.
class Lines {
 public:
  void Add(const std::string& name, const std::string& value) {
    if (value.empty()) return;
    std::string label = absl::StrCat(name, ":");
    for (const std::string& line : Wrap(value, kTextWidth - kLabelWidth - 1)) {
      absl::StrAppendFormat(&text_, "%-*s %s\n", kLabelWidth, label, line);
      label.clear();
    }
  }
  std::string text() const { return text_; }

 private:
  static constexpr int kLabelWidth = 12;
  std::string text_;
};

std::string RenderMetrics(const v1::Worker& worker) {
  std::vector<std::string> metrics;
  for (const auto& [name, value] : worker.metrics()) {
    // Large ones are counts or rates: no exponents.
    metrics.push_back(absl::StrFormat(std::abs(value) < 1e4 ? "%s=%.4g" : "%s=%.0f", name, value));
  }
  std::sort(metrics.begin(), metrics.end());
  return absl::StrJoin(metrics, " ");
}

// What buffer syncs did; empty if no worker tells.
std::string RenderSyncs(const std::vector<v1::Worker>& workers) {
  Table table({{.title = "SYNCS OF"},
               {.title = "COUNT", .align = kRight},
               {.title = "TRANSFERS", .align = kRight},
               {.title = "BYTES", .align = kRight},
               {.title = "SKIPPED BYTES", .align = kRight},
               {.title = "LAST TRANSFERS", .align = kRight},
               {.title = "LAST BYTES", .align = kRight}});
  bool is_told = false;
  for (const v1::Worker& worker : workers) {
    if (!worker.has_sync()) continue;
    is_told = true;
    const v1::SyncCounters& sync = worker.sync();
    table.AddRow({worker.name(), absl::StrCat(sync.syncs()), absl::StrCat(sync.transfers()),
                  absl::StrCat(sync.bytes()), absl::StrCat(sync.skipped_bytes()),
                  absl::StrCat(sync.last_transfers()), absl::StrCat(sync.last_bytes())});
  }
  return is_told ? absl::StrCat("\n", table.ToString()) : "";
}

}  // namespace

std::string RenderJson(const google::protobuf::Message& message, JsonLayout layout) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = layout == JsonLayout::kPretty;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // Fails only for messages that hold Any, which the API does not use.
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  if (json.empty() || json.back() != '\n') json += '\n';
  return json;
}

std::string RenderPolicy(const v1::SyncPolicy& policy) {
  std::vector<std::string> parts = {IsOn(policy) ? "on" : "off"};
  if (policy.allow_list_size() > 0) parts.push_back("allow " + RenderPatterns(policy.allow_list()));
  if (policy.ignore_list_size() > 0) {
    parts.push_back("ignore " + RenderPatterns(policy.ignore_list()));
  }
  for (const v1::SyncRule& rule : policy.rules()) parts.push_back("rule " + RuleText(rule));
  if (policy.operation() != v1::OPERATION_UNSPECIFIED &&
      policy.operation() != v1::OPERATION_BROADCAST) {
    parts.push_back("by " + OperationWord(policy.operation()));
  }
  if (policy.root().root_case() != v1::Root::ROOT_NOT_SET) {
    parts.push_back("root " + DescribeRoot(policy.root()));
  }
  parts.push_back(DescribeSchedule(ScheduleOf(policy)));
  if (policy.skip_unchanged()) parts.push_back("unless unchanged");
  const std::string parameters = RenderParameters(policy);
  if (parameters != RenderParameters({})) parts.push_back("parameters " + parameters);
  return absl::StrJoin(parts, "; ");
}

std::string RenderJobs(const std::vector<v1::Job>& jobs) {
  Table table({{.title = "NAME"},
               {.title = "STATE"},
               {.title = "EPOCH", .align = kRight},
               {.title = "STEP", .align = kRight},
               {.title = "POLICY", .align = kRight},
               {.title = "DETAIL"}});
  for (const v1::Job& job : jobs) {
    table.AddRow({job.spec().name(), StateName(job.state()), absl::StrCat(job.epoch()),
                  absl::StrCat(job.step()), absl::StrCat(job.policy().revision()), job.detail()});
  }
  return table.ToString();
}

std::string RenderJob(const v1::Job& job) {
  Lines lines;
  lines.Add("job", job.spec().name());
  lines.Add("state", StateName(job.state()));
  lines.Add("detail", job.detail());
  lines.Add("workers", absl::StrCat(job.spec().min_workers(), " to ",
                                    std::max(job.spec().min_workers(), job.spec().max_workers())));
  lines.Add("epoch", absl::StrCat(job.epoch()));
  lines.Add("step", absl::StrCat(job.step()));
  lines.Add("policy", absl::StrCat("revision ", job.policy().revision(), ", ",
                                   StateName(job.policy().state()), ": ",
                                   RenderPolicy(job.policy().policy())));
  lines.Add("created", RenderTime(job.create_time()));
  return lines.text();
}

std::string RenderWorkers(const std::vector<v1::Worker>& workers) {
  Table table({{.title = "NAME"},
               {.title = "STATE"},
               {.title = "RANK", .align = kRight},
               {.title = "STEP", .align = kRight},
               {.title = "PHASE"},
               {.title = "TRANSPORT"},
               {.title = "OPTIMIZER BYTES", .align = kRight},
               {.title = "METRICS"}});
  for (const v1::Worker& worker : workers) {
    table.AddRow({worker.name(), StateName(worker.state()),
                  worker.rank() < 0 ? "-" : absl::StrCat(worker.rank()),
                  absl::StrCat(worker.step()), worker.phase(), worker.transport(),
                  absl::StrCat(worker.optimizer_bytes()), RenderMetrics(worker)});
  }
  return absl::StrCat(table.ToString(), RenderSyncs(workers));
}

std::string RenderShardPlan(const v1::GetShardPlanResponse& plan) {
  Table table({{.title = "RANK", .align = kRight},
               {.title = "WORKER"},
               {.title = "BEGIN", .align = kRight},
               {.title = "END", .align = kRight},
               {.title = "ELEMENTS", .align = kRight}});
  for (const v1::Shard& shard : plan.shards()) {
    table.AddRow({absl::StrCat(shard.rank()), shard.worker(), absl::StrCat(shard.begin()),
                  absl::StrCat(shard.end()), absl::StrCat(shard.end() - shard.begin())});
  }
  return absl::StrCat("epoch ", plan.epoch(), ": ", plan.flat_elements(), " elements of ",
                      plan.tensors(), " parameters, digest ", plan.digest(), "\n",
                      table.ToString());
}

std::string RenderRevision(const v1::SyncPolicyRevision& revision) {
  const v1::SyncPolicy& policy = revision.policy();
  Lines lines;
  lines.Add("revision", absl::StrCat(revision.revision(), ", ", StateName(revision.state())));
  if (revision.state() == v1::SyncPolicyRevision::STATE_EFFECTIVE) {
    lines.Add("since step", absl::StrCat(revision.effective_step()));
  }
  lines.Add("buffers", IsOn(policy) ? "synchronised" : "not synchronised while training");
  lines.Add("allow", RenderPatterns(policy.allow_list()));
  lines.Add("ignore", RenderPatterns(policy.ignore_list()));
  for (int i = 0; i < policy.rules_size(); ++i) {
    lines.Add(absl::StrCat("rules[", i, "]"), RuleText(policy.rules(i)));
  }
  lines.Add(policy.rules_size() > 0 ? "others by" : "by",
            OperationWord(Complete(policy).operation()));
  lines.Add("root", DescribeRoot(policy.root()));
  lines.Add("when", DescribeSchedule(ScheduleOf(policy)));
  if (policy.skip_unchanged()) lines.Add("leaves out", "buffers that no rank has changed");
  lines.Add("parameters", RenderParameters(policy));
  lines.Add("author", revision.author());
  lines.Add("reason", revision.reason());
  lines.Add("created", RenderTime(revision.create_time()));
  lines.Add("etag", revision.etag());
  return lines.text();
}

std::string RenderHistory(const std::vector<v1::SyncPolicyRevision>& revisions) {
  Table table({{.title = "REVISION", .align = kRight},
               {.title = "STATE"},
               {.title = "SINCE STEP", .align = kRight},
               {.title = "CREATED"},
               {.title = "AUTHOR", .max_width = 12},
               {.title = "POLICY AND REASON"}});
  for (const v1::SyncPolicyRevision& revision : revisions) {
    table.AddRow({absl::StrCat(revision.revision()), StateName(revision.state()),
                  EffectiveSince(revision), RenderTime(revision.create_time()), revision.author(),
                  absl::StrCat(RenderPolicy(revision.policy()),
                               revision.reason().empty() ? "" : "; because: ",
                               revision.reason())});
  }
  return table.ToString();
}

}  // namespace lockstep
