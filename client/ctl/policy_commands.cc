#include "client/ctl/policy_commands.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/ctl/edit_command.h"
#include "client/ctl/options.h"
#include "client/ctl/policy_calls.h"
#include "client/ctl/policy_edit.h"
#include "client/ctl/policy_files.h"
#include "client/ctl/policy_flags.h"
#include "client/ctl/policy_text.h"
#include "client/ctl/policy_words.h"
#include "client/ctl/preview_table.h"
#include "client/ctl/render.h"
#include "client/ctl/wait.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

// A revision's number, from 1.
CLI::Option* AddRevision(CLI::App* command, const std::string& name, std::int64_t* value,
                         const std::string& help) {
  return command->add_option(name, *value, help)
      ->check([](const std::string& text) {
        std::int64_t number = 0;
        const bool is_one = absl::SimpleAtoi(text, &number) && number >= 1;
        return is_one ? "" : absl::StrCat("'", text, "' is no revision; they count from 1");
      })
      ->type_name("REVISION");
}

void SayNote(const PolicyEdit& edit, const v1::SyncPolicy& edited) {
  const std::string note = NoteOnPeriods(edit, edited);
  if (!note.empty()) Say(absl::StrCat("note: ", note, "\n"));
}

struct GetFlags {
  std::string job;
  std::int64_t revision = 0;
  bool textproto = false;
};

ExitCode GetPolicy(Context& context, const GetFlags& flags) {
  if (flags.textproto && context.json) {
    return FailUsage("policy get: --textproto and --json exclude each other");
  }
  const auto revision = context.client->GetSyncPolicy(flags.job, flags.revision, context.call());
  if (!revision.ok()) return Fail(revision.status());
  if (flags.textproto) {
    Print(PolicyText(flags.job, *revision));
  } else {
    Print(context.json ? RenderJson(*revision) : RenderRevision(*revision, context.color));
  }
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
    Print(RenderHistory(*revisions, context.color));
  }
  return ExitCode::kOk;
}

struct SetFlags {
  std::string job;
  EditFlags edit;
  std::string etag;
  SendFlags send;
};

ExitCode SetPolicy(Context& context, const SetFlags& flags) {
  const absl::StatusOr<PolicyEdit> edit = ReadEdit(flags.edit);
  if (!edit.ok()) return Fail(edit.status());
  if (edit->names_nothing()) {
    return FailUsage("policy set: no change is named; see the flags");
  }
  const auto present = context.client->GetSyncPolicy(flags.job, 0, context.call());
  if (!present.ok()) return Fail(present.status());
  const absl::StatusOr<v1::SyncPolicy> policy = Apply(*edit, present->policy());
  if (!policy.ok()) return FailUsage(std::string(policy.status().message()));
  absl::StatusOr<v1::SyncPolicyRevision> revision =
      Send(context, flags.job, *policy, flags.etag.empty() ? present->etag() : flags.etag,
           flags.send);
  if (!revision.ok()) return Fail(revision.status());
  SayNote(*edit, *policy);
  return Conclude(context, flags.job, *present, *std::move(revision), flags.send);
}

struct RollbackFlags {
  std::string job;
  std::int64_t revision = 0;  // 0: the one before the newest
  SendFlags send;
};

ExitCode RollBack(Context& context, RollbackFlags flags) {
  const auto present = context.client->GetSyncPolicy(flags.job, 0, context.call());
  if (!present.ok()) return Fail(present.status());
  if (flags.revision == 0) {
    const absl::StatusOr<std::int64_t> before = RevisionBefore(*present);
    if (!before.ok()) return Fail(before.status());
    flags.revision = *before;
  }
  const auto old = context.client->GetSyncPolicy(flags.job, flags.revision, context.call());
  if (!old.ok()) return Fail(old.status());
  if (flags.send.reason.empty()) {
    flags.send.reason = absl::StrCat("rollback to revision ", flags.revision);
  }
  absl::StatusOr<v1::SyncPolicyRevision> revision =
      Send(context, flags.job, old->policy(), present->etag(), flags.send);
  if (!revision.ok()) return Fail(revision.status());
  return Conclude(context, flags.job, *present, *std::move(revision), flags.send);
}

struct DiffFlags {
  std::string job;
  std::int64_t from = 0;  // 0: the one before `to`
  std::int64_t to = 0;    // 0: the newest
  std::string file;
};

absl::StatusOr<PolicyDiff> Diff(Context& context, const DiffFlags& flags) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const v1::SyncPolicyRevision to,
      context.client->GetSyncPolicy(flags.job, flags.to, context.call()));
  if (!flags.file.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(v1::SyncPolicy policy, ReadPolicy(flags.file));
    return Compare(context, flags.job, Named(to),
                   {.name = flags.file == "-" ? "standard input" : flags.file,
                    .policy = std::move(policy)});
  }
  std::int64_t number = flags.from;
  if (number == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(number, RevisionBefore(to));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::SyncPolicyRevision from,
                            context.client->GetSyncPolicy(flags.job, number, context.call()));
  return Compare(context, flags.job, Named(from), Named(to));
}

ExitCode ShowDiff(Context& context, const DiffFlags& flags) {
  const absl::StatusOr<PolicyDiff> diff = Diff(context, flags);
  if (!diff.ok()) return Fail(diff.status());
  Print(context.json ? RenderDiffJson(*diff) : RenderDiff(*diff));
  return ExitCode::kOk;
}

struct PreviewFlags {
  std::string job;
  std::int64_t revision = 0;
  EditFlags edit;
  bool synced_only = false;
};

void KeepSynced(v1::PreviewSyncPolicyResponse& preview) {
  auto& buffers = *preview.mutable_buffers();
  const auto is_left_out = [](const v1::BufferPreview& buffer) {
    return buffer.selection() != v1::BufferPreview::SELECTION_SYNCED;
  };
  buffers.erase(std::remove_if(buffers.begin(), buffers.end(), is_left_out), buffers.end());
}

ExitCode ShowPreview(Context& context, const PreviewFlags& flags) {
  const absl::StatusOr<PolicyEdit> edit = ReadEdit(flags.edit);
  if (!edit.ok()) return Fail(edit.status());
  const auto base = context.client->GetSyncPolicy(flags.job, flags.revision, context.call());
  if (!base.ok()) return Fail(base.status());
  const absl::StatusOr<v1::SyncPolicy> policy = Apply(*edit, base->policy());
  if (!policy.ok()) return FailUsage(std::string(policy.status().message()));
  v1::PreviewSyncPolicyRequest request;
  request.set_job(flags.job);
  // Named, so that all pages are of one policy.
  *request.mutable_policy() = *policy;
  absl::StatusOr<v1::PreviewSyncPolicyResponse> preview =
      context.client->PreviewSyncPolicy(request, context.call());
  if (!preview.ok()) return Fail(preview.status());
  SayNote(*edit, *policy);
  if (flags.synced_only) KeepSynced(*preview);
  Print(context.json ? RenderJson(*preview) : RenderPreview(*preview));
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

void AddGet(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand("get", "a revision, by default the newest");
  auto flags = std::make_shared<GetFlags>();
  AddJob(command, &flags->job);
  AddRevision(command, "--revision", &flags->revision, "this one; default: the newest");
  command->add_flag("--textproto", flags->textproto,
                    "as `policy edit` shows it, for --from and --file");
  command->callback([=] { *chosen = [=] { return GetPolicy(*context, *flags); }; });
  AddExample(command, "policy get mnist --textproto");
}

void AddSet(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand(
      "set", "change what is named, on all workers between the same two steps");
  auto flags = std::make_shared<SetFlags>();
  AddJob(command, &flags->job);
  AddEditFlags(command, &flags->edit,
               {"policy set mnist --rule '**.running_* mean every-steps=100' --wait",
                "policy set mnist --clear-rules --ignore 'bn1.*' --reason 'drift'"});
  command->add_option("--etag", flags->etag, "refuse unless this is the newest revision's etag");
  AddSendFlags(command, Checking::kOffered, &flags->send);
  command->callback([=] { *chosen = [=] { return SetPolicy(*context, *flags); }; });
}

void AddRollback(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command =
      app->add_subcommand("rollback", "make a new revision that says what an old one said");
  auto flags = std::make_shared<RollbackFlags>();
  AddJob(command, &flags->job);
  AddRevision(command, "revision", &flags->revision,
              "the old one; default: the one before the newest");
  AddSendFlags(command, Checking::kOffered, &flags->send);
  command->callback([=] { *chosen = [=] { return RollBack(*context, *flags); }; });
  AddExample(command, "policy rollback mnist 3 --wait");
}

void AddDiff(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand(
      "diff", "what differs between two revisions, or the newest and a file: fields, then buffers");
  auto flags = std::make_shared<DiffFlags>();
  AddJob(command, &flags->job);
  CLI::Option* from = AddRevision(command, "--from", &flags->from,
                                  "this revision; default: the one before --to");
  CLI::Option* to =
      AddRevision(command, "--to", &flags->to, "and this one; default: the newest");
  command
      ->add_option("--file", flags->file,
                   "the newest and the policy in this file, textproto or JSON; '-': standard input")
      ->type_name(kFileType)
      ->excludes(from)
      ->excludes(to);
  command->callback([=] { *chosen = [=] { return ShowDiff(*context, *flags); }; });
  AddExample(command, "policy diff mnist --from 3 --to 5");
}

void AddPreview(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand(
      "preview", "what a policy does to each buffer and what that costs, also of a change that is "
                 "not made yet");
  auto flags = std::make_shared<PreviewFlags>();
  AddJob(command, &flags->job);
  CLI::Option* revision =
      AddRevision(command, "--revision", &flags->revision,
                  "begin with the policy of this revision; default: the newest");
  AddEditFlags(command, &flags->edit,
               {"policy preview mnist --rule '**.running_* mean' --every-forwards 0 "
                "--every-steps 100"})
      ->excludes(revision);
  command->add_flag("--synced-only", flags->synced_only, "leave out buffers that are not synced");
  command->callback([=] { *chosen = [=] { return ShowPreview(*context, *flags); }; });
}

void AddHistory(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand("history", "revisions, newest first");
  auto flags = std::make_shared<HistoryFlags>();
  AddJob(command, &flags->job);
  command->add_option("--limit", flags->limit, "at most this many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->callback([=] { *chosen = [=] { return ShowHistory(*context, *flags); }; });
  AddExample(command, "policy history mnist --limit 10");
}

void AddSync(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command =
      app->add_subcommand("sync", "synchronise once, whatever schedule and master switch say");
  auto flags = std::make_shared<SyncFlags>();
  AddJob(command, &flags->job);
  command->add_flag("--buffers", flags->buffers, "the buffers that the policy selects (default)");
  command->add_flag("--parameters", flags->parameters, "all parameters");
  command->add_option("--root", flags->root,
                      "broadcast all of it from this rank or worker; default: each buffer by its "
                      "rule's operation and root, parameters from the policy's root");
  command->add_flag("--wait", flags->wait,
                    "wait until all workers have done it, up to --timeout (1m)");
  command->callback([=] { *chosen = [=] { return Sync(*context, *flags); }; });
  AddExample(command, "sync mnist --parameters --root w0 --wait");
}

}  // namespace

void AddPolicyCommands(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* policy = app->add_subcommand(
      "policy", "sync policy: get, set, edit, preview, diff, rollback, history");
  policy->require_subcommand(1);
  AddGet(policy, context, chosen);
  AddSet(policy, context, chosen);
  AddEditCommand(policy, context, chosen);
  AddPreview(policy, context, chosen);
  AddDiff(policy, context, chosen);
  AddRollback(policy, context, chosen);
  AddHistory(policy, context, chosen);
  AddSync(app, context, chosen);
}

}  // namespace lockstep
