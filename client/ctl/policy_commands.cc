#include "client/ctl/policy_commands.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/files.h"
#include "client/ctl/policy_edit.h"
#include "client/ctl/render.h"
#include "client/ctl/wait.h"

namespace lockstep {
namespace {

constexpr char kJobHelp[] = "the job's name";

std::string User() {
  const char* user = std::getenv("USER");
  return user == nullptr ? "" : user;
}

ExitCode GetPolicy(Context& context, const std::string& job) {
  const auto revision = context.client->GetSyncPolicy(job, context.call());
  if (!revision.ok()) return Fail(revision.status());
  Print(context.json ? RenderJson(*revision) : RenderRevision(*revision));
  return ExitCode::kOk;
}

struct HistoryFlags {
  std::string job;
  int limit = 100;
};

ExitCode ShowHistory(Context& context, const HistoryFlags& flags) {
  const auto revisions =
      context.client->ListSyncPolicyRevisions(flags.job, flags.limit, context.call());
  if (!revisions.ok()) return Fail(revisions.status());
  if (context.json) {
    v1::ListSyncPolicyRevisionsResponse all;
    for (const v1::SyncPolicyRevision& revision : *revisions) *all.add_revisions() = revision;
    Print(RenderJson(all));
  } else {
    Print(RenderHistory(*revisions));
  }
  return ExitCode::kOk;
}

struct SetFlags {
  std::string job;
  PolicyEdit edit;
  std::string from_json;
  std::string etag;
  bool validate_only = false;
  bool allow_unmatched = false;
  std::string author = User();
  std::string reason;
  bool wait = false;
};

// The revision as it is once effective.
ExitCode AwaitRevision(Context& context, const std::string& job,
                       v1::SyncPolicyRevision& revision) {
  const ExitCode waited = AwaitEntry(context, job, revision.log_number());
  if (waited != ExitCode::kOk) return waited;
  const std::int64_t number = revision.revision();
  const auto newest = context.client->GetSyncPolicy(job, context.call());
  if (!newest.ok()) return Fail(newest.status());
  const auto behind = static_cast<int>(newest->revision() - number);
  const auto revisions = context.client->ListSyncPolicyRevisions(job, behind + 1, context.call());
  if (!revisions.ok()) return Fail(revisions.status());
  for (const v1::SyncPolicyRevision& found : *revisions) {
    if (found.revision() == number) revision = found;
  }
  return ExitCode::kOk;
}

ExitCode SetPolicy(Context& context, SetFlags& flags) {
  if (!flags.from_json.empty()) {
    const absl::Status read = ReadJson(flags.from_json, &flags.edit.base.emplace());
    if (!read.ok()) return Fail(read);
  }
  if (flags.edit.names_nothing()) {
    return FailUsage("policy set: no change is named; see the flags");
  }
  if (flags.wait && flags.validate_only) {
    return FailUsage("policy set: --wait and --validate-only exclude each other");
  }
  const auto present = context.client->GetSyncPolicy(flags.job, context.call());
  if (!present.ok()) return Fail(present.status());
  absl::StatusOr<v1::SyncPolicy> policy = Apply(flags.edit, present->policy());
  if (!policy.ok()) return FailUsage(std::string(policy.status().message()));

  v1::UpdateSyncPolicyRequest request;
  request.set_job(flags.job);
  *request.mutable_policy() = *std::move(policy);
  request.set_etag(flags.etag.empty() ? present->etag() : flags.etag);
  request.set_validate_only(flags.validate_only);
  request.set_allow_unmatched(flags.allow_unmatched);
  request.set_author(flags.author);
  request.set_reason(flags.reason);
  absl::StatusOr<v1::SyncPolicyRevision> revision =
      context.client->UpdateSyncPolicy(request, context.call());
  if (!revision.ok()) return Fail(revision.status());
  if (flags.wait) {
    const ExitCode waited = AwaitRevision(context, flags.job, *revision);
    if (waited != ExitCode::kOk) return waited;
  }
  if (context.json) {
    Print(RenderJson(*revision));
  } else if (flags.validate_only) {
    Print("valid; nothing was changed\n");
  } else if (flags.wait) {
    Print(absl::StrCat("revision ", revision->revision(), " took effect after step ",
                       revision->effective_step(), "\n"));
  } else {
    Print(absl::StrCat("revision ", revision->revision(), " is pending\n"));
  }
  return ExitCode::kOk;
}

struct SyncFlags {
  std::string job;
  bool buffers = false;
  bool parameters = false;
  std::string root;
  bool wait = false;
};

ExitCode Sync(Context& context, const SyncFlags& flags) {
  v1::SyncNowRequest request;
  request.set_job(flags.job);
  // Naming nothing means what a person most likely wants.
  request.set_buffers(flags.buffers || !flags.parameters);
  request.set_parameters(flags.parameters);
  if (!flags.root.empty()) {
    absl::StatusOr<v1::Root> root = ParseRoot(flags.root);
    if (!root.ok()) return FailUsage(std::string(root.status().message()));
    *request.mutable_root() = *std::move(root);
  }
  const absl::StatusOr<std::int64_t> number = context.client->SyncNow(request, context.call());
  if (!number.ok()) return Fail(number.status());
  if (flags.wait) {
    const ExitCode waited = AwaitEntry(context, flags.job, *number);
    if (waited != ExitCode::kOk) return waited;
  }
  if (context.json) {
    v1::SyncNowResponse response;
    response.set_log_number(*number);
    Print(RenderJson(response));
  } else {
    Print(absl::StrCat("sync is entry ", *number, " of the control log",
                       flags.wait ? " and was done by all workers\n" : "\n"));
  }
  return ExitCode::kOk;
}

void AddSwitch(CLI::App* command, const std::string& name, std::optional<bool>* value,
               const std::string& help) {
  command->add_flag_function(
      absl::StrCat("--", name, ",!--no-", name),
      [value](std::int64_t count) { *value = count > 0; }, help);
}

void AddSet(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand(
      "set", "change what is named, on all workers between the same two steps");
  auto flags = std::make_shared<SetFlags>();
  PolicyEdit& edit = flags->edit;
  command->add_option("job", flags->job, kJobHelp)->required();
  AddSwitch(command, "broadcast-buffers", &edit.broadcast_buffers,
            "the master switch while training runs");
  command->add_option("--allow", edit.allow, "add a pattern to the allow list (repeatable)")
      ->allow_extra_args(false);
  command->add_option("--ignore", edit.ignore, "add a pattern to the ignore list (repeatable)")
      ->allow_extra_args(false);
  command->add_flag("--clear-allow", edit.clear_allow, "empty the allow list before --allow");
  command->add_flag("--clear-ignore", edit.clear_ignore, "empty the ignore list before --ignore");
  command->add_option("--root", edit.root, "whose values win: a rank or a worker's name");
  command->add_flag("--clear-root", edit.clear_root, "back to the lowest rank");
  AddSwitch(command, "at-start", &edit.at_start, "sync buffers when an epoch starts");
  command->add_option("--every-forwards", edit.every_forwards,
                      "sync before every k-th training forward; 0: never");
  command->add_option("--every-steps", edit.every_steps, "sync after every n-th step; 0: never");
  AddSwitch(command, "before-evaluation", &edit.before_evaluation, "sync before each evaluation");
  AddSwitch(command, "parameters-at-start", &edit.parameters_at_start,
            "broadcast parameters when an epoch starts");
  command->add_option("--from-json", flags->from_json,
                      "begin with the policy in this file, not the present one; '-': standard "
                      "input");
  command->add_option("--etag", flags->etag, "refuse unless this is the newest revision's etag");
  command->add_flag("--validate-only", flags->validate_only, "check, change nothing");
  command->add_flag("--allow-unmatched", flags->allow_unmatched,
                    "accept patterns that match no buffer");
  command->add_option("--reason", flags->reason, "why, for the history");
  command->add_option("--author", flags->author, "who, for the history; default: $USER");
  command->add_flag("--wait", flags->wait,
                    "wait until it took effect on all workers, up to --timeout (1m)");
  command->callback([=] { *chosen = [=] { return SetPolicy(*context, *flags); }; });
}

void AddSync(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand("sync", "synchronise once, whatever the policy says");
  auto flags = std::make_shared<SyncFlags>();
  command->add_option("job", flags->job, kJobHelp)->required();
  command->add_flag("--buffers", flags->buffers, "the buffers that the policy selects (default)");
  command->add_flag("--parameters", flags->parameters, "all parameters");
  command->add_option("--root", flags->root, "whose values win: a rank or a worker's name");
  command->add_flag("--wait", flags->wait,
                    "wait until all workers have done it, up to --timeout (1m)");
  command->callback([=] { *chosen = [=] { return Sync(*context, *flags); }; });
}

}  // namespace

void AddPolicyCommands(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* policy = app->add_subcommand("policy", "sync policy: get, set, history");
  policy->require_subcommand(1);

  CLI::App* get = policy->add_subcommand("get", "the newest revision");
  auto job = std::make_shared<std::string>();
  get->add_option("job", *job, kJobHelp)->required();
  get->callback([=] { *chosen = [=] { return GetPolicy(*context, *job); }; });

  AddSet(policy, context, chosen);

  CLI::App* history = policy->add_subcommand("history", "revisions, newest first");
  auto flags = std::make_shared<HistoryFlags>();
  history->add_option("job", flags->job, kJobHelp)->required();
  history->add_option("--limit", flags->limit, "at most this many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  history->callback([=] { *chosen = [=] { return ShowHistory(*context, *flags); }; });

  AddSync(app, context, chosen);
}

}  // namespace lockstep
