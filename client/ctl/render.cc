#include "client/ctl/render.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/ctl/policy_words.h"
#include "client/ctl/progress.h"
#include "client/ctl/table.h"
#include "common/policy/operation.h"
#include "common/policy/sync_policy.h"
#include "google/protobuf/util/json_util.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

constexpr Table::Align kRight = Table::Align::kRight;

std::string RenderTime(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(time.seconds()),
                          absl::UTCTimeZone());
}

// A newer coordinator's policy may be one that this tool does not know.
std::string NotKnown(const absl::Status& why) {
  return absl::StrCat("not known to this lockstepctl: ", why.message());
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

std::string RenderPolicy(const v1::SyncPolicy& proto) {
  const absl::StatusOr<SyncPolicy> policy = FromProto(proto);
  return policy.ok() ? Describe(*policy) : NotKnown(policy.status());
}

void AddPolicy(const SyncPolicy& policy, Lines& lines) {
  lines.Add("buffers",
            policy.broadcast_buffers ? "synchronised" : "not synchronised while training");
  lines.Add("allow", absl::StrJoin(policy.allow_list, ", "));
  lines.Add("ignore", absl::StrJoin(policy.ignore_list, ", "));
  for (std::size_t i = 0; i < policy.rules.size(); ++i) {
    lines.Add(absl::StrCat("rules[", i, "]"), RuleText(policy.rules[i]));
  }
  lines.Add(policy.rules.empty() ? "by" : "others by",
            std::string(OperationName(policy.operation)));
  lines.Add("root", Describe(policy.root));
  lines.Add("when", Describe(policy.schedule));
  if (policy.skip_unchanged) lines.Add("leaves out", "buffers that no rank has changed");
  lines.Add("parameters", DescribeParameters(policy));
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

std::string RenderJobs(const std::vector<v1::Job>& jobs, Color color) {
  Table table({{.title = "NAME"},
               {.title = "STATE"},
               {.title = "EPOCH", .align = kRight},
               {.title = "STEP", .align = kRight},
               {.title = "POLICY", .align = kRight},
               {.title = "DETAIL"}});
  for (const v1::Job& job : jobs) {
    table.AddRow({job.spec().name(), {StateName(job.state()), StyleOf(job.state())},
                  absl::StrCat(job.epoch()), absl::StrCat(job.step()),
                  absl::StrCat(job.policy().revision()), job.detail()});
  }
  return table.ToString(color);
}

std::string RenderJob(const v1::Job& job, Color color) {
  Lines lines;
  lines.Add("job", job.spec().name());
  lines.Add("state", Paint(StateName(job.state()), StyleOf(job.state()), color));
  lines.Add("detail", job.detail());
  lines.Add("workers", absl::StrCat(job.spec().min_workers(), " to ",
                                    std::max(job.spec().min_workers(), job.spec().max_workers())));
  lines.Add("optimizer", absl::StrCat("state of each shard on ",
                                      std::max(job.spec().optimizer_replicas(), 1),
                                      job.spec().optimizer_replicas() > 1 ? " workers" : " worker"));
  lines.Add("epoch", absl::StrCat(job.epoch()));
  lines.Add("step", absl::StrCat(job.step()));
  lines.Add("policy", absl::StrCat("revision ", job.policy().revision(), ", ",
                                   StateName(job.policy().state()), ": ",
                                   RenderPolicy(job.policy().policy())));
  lines.Add("created", RenderTime(job.create_time()));
  return lines.text();
}

std::string RenderWorkers(const std::vector<v1::Worker>& workers, Color color) {
  Table table({{.title = "NAME"},
               {.title = "STATE"},
               {.title = "RANK", .align = kRight},
               {.title = "STEP", .align = kRight},
               {.title = "PHASE"},
               {.title = "TRANSPORT"},
               {.title = "OPTIMIZER BYTES", .align = kRight},
               {.title = "METRICS"}});
  for (const v1::Worker& worker : workers) {
    table.AddRow({worker.name(), {StateName(worker.state()), StyleOf(worker.state())},
                  worker.rank() < 0 ? "-" : absl::StrCat(worker.rank()),
                  absl::StrCat(worker.step()), worker.phase(), worker.transport(),
                  absl::StrCat(worker.optimizer_bytes()), RenderMetrics(worker)});
  }
  return absl::StrCat(table.ToString(color), RenderSyncs(workers));
}

std::string RenderShardPlan(const v1::GetShardPlanResponse& plan) {
  Table shards({{.title = "RANK", .align = kRight},
                {.title = "WORKER"},
                {.title = "BEGIN", .align = kRight},
                {.title = "END", .align = kRight},
                {.title = "ELEMENTS", .align = kRight},
                {.title = "COPY KEPT BY"}});
  for (const v1::Shard& shard : plan.shards()) {
    shards.AddRow({absl::StrCat(shard.rank()), shard.worker(), absl::StrCat(shard.begin()),
                   absl::StrCat(shard.end()), absl::StrCat(shard.end() - shard.begin()),
                   shard.buddy().empty() ? "-" : shard.buddy()});
  }
  Table costs({{.title = "OPTIMIZER REPLICAS", .align = kRight},
               {.title = "OPTIMIZER BYTES", .align = kRight},
               {.title = "BYTES SENT IN A STEP", .align = kRight},
               {.title = ""}});
  for (const v1::ReplicaCost& cost : plan.replica_costs()) {
    costs.AddRow({absl::StrCat(cost.optimizer_replicas()),
                  cost.has_optimizer_bytes() ? absl::StrCat(cost.optimizer_bytes()) : "-",
                  absl::StrCat(cost.step_bytes()),
                  cost.optimizer_replicas() == plan.optimizer_replicas() ? "this job" : ""});
  }
  return absl::StrCat("epoch ", plan.epoch(), ": ", plan.flat_elements(), " elements of ",
                      plan.tensors(), " parameters, digest ", plan.digest(), "\n",
                      shards.ToString(), "\non the rank that has the most, over a network:\n",
                      costs.ToString());
}

std::string RenderRevision(const v1::SyncPolicyRevision& revision, Color color) {
  Lines lines;
  lines.Add("revision",
            absl::StrCat(revision.revision(), ", ",
                         Paint(StateName(revision.state()), StyleOf(revision.state()), color)));
  if (revision.state() == v1::SyncPolicyRevision::STATE_EFFECTIVE) {
    lines.Add("since step", absl::StrCat(revision.effective_step()));
  }
  if (const absl::StatusOr<SyncPolicy> policy = FromProto(revision.policy()); policy.ok()) {
    AddPolicy(*policy, lines);
  } else {
    lines.Add("policy", NotKnown(policy.status()));
  }
  lines.Add("author", revision.author());
  lines.Add("reason", revision.reason());
  lines.Add("created", RenderTime(revision.create_time()));
  lines.Add("etag", revision.etag());
  return lines.text();
}

std::string RenderHistory(const std::vector<v1::SyncPolicyRevision>& revisions, Color color) {
  Table table({{.title = "REVISION", .align = kRight},
               {.title = "STATE"},
               {.title = "SINCE STEP", .align = kRight},
               {.title = "CREATED"},
               {.title = "AUTHOR", .max_width = 12},
               {.title = "POLICY AND REASON"}});
  for (const v1::SyncPolicyRevision& revision : revisions) {
    table.AddRow({absl::StrCat(revision.revision()),
                  {StateName(revision.state()), StyleOf(revision.state())},
                  EffectiveSince(revision), RenderTime(revision.create_time()), revision.author(),
                  absl::StrCat(RenderPolicy(revision.policy()),
                               revision.reason().empty() ? "" : "; because: ",
                               revision.reason())});
  }
  return table.ToString(color);
}

}  // namespace lockstep
