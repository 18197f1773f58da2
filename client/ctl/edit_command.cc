#include "client/ctl/edit_command.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/options.h"
#include "client/ctl/policy_calls.h"
#include "client/ctl/policy_files.h"
#include "client/ctl/policy_flags.h"
#include "client/ctl/policy_text.h"
#include "client/ctl/render.h"
#include "client/ctl/scratch_file.h"
#include "client/ctl/terminal.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

struct EditCommandFlags {
  std::string job;
  bool yes = false;
  SendFlags send;
};

ExitCode ConcludeUnchanged(const Context& context, const v1::SyncPolicyRevision& present) {
  Print(context.json ? RenderJson(present) : "nothing was changed\n");
  return ExitCode::kOk;
}

// Nobody's text gets lost.
ExitCode FailAndKeep(const absl::Status& why, const std::string& job, ScratchFile& file) {
  file.Keep();
  const ExitCode code = Fail(why);
  if (absl::IsAborted(why)) {
    Say(absl::StrCat("Somebody changed the policy meanwhile: `lockstepctl policy diff ", job,
                     "` shows what. Nothing was sent; your text is in ", file.path(),
                     ". Then either edit again, or replace the newest policy with your text: "
                     "`lockstepctl policy set ",
                     job, " --from ", file.path(), "`.\n"));
  } else {
    Say(absl::StrCat("Nothing was changed; your text is in ", file.path(), "\n"));
  }
  return code;
}

// One round in the editor: the policy, checked here and by the coordinator; nothing
// if the text is as it was or emptied.
absl::StatusOr<std::optional<v1::SyncPolicy>> EditOnce(Context& context,
                                                       const EditCommandFlags& flags,
                                                       const v1::SyncPolicyRevision& present,
                                                       const std::string& path) {
  LOCKSTEP_RETURN_IF_ERROR(RunEditor(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  if (text == PolicyText(flags.job, present) || IsEmptied(text)) return std::nullopt;
  LOCKSTEP_ASSIGN_OR_RETURN(v1::SyncPolicy policy, ParsePolicy(text, path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<FieldChange> changes,
                            DiffPolicies(present.policy(), policy));
  if (changes.empty()) return std::nullopt;
  SendFlags check = flags.send;
  check.validate_only = true;
  LOCKSTEP_RETURN_IF_ERROR(Send(context, flags.job, policy, present.etag(), check).status());
  return policy;
}

ExitCode EditPolicy(Context& context, const EditCommandFlags& flags) {
  if (!flags.yes && !HasTerminal()) {
    return FailUsage("policy edit: standard input is no terminal, so that nobody can confirm the "
                     "change; give --yes");
  }
  const auto present = context.client->GetSyncPolicy(flags.job, 0, context.call());
  if (!present.ok()) return Fail(present.status());
  absl::StatusOr<ScratchFile> file =
      ScratchFile::Create(absl::StrCat("lockstep-policy-", flags.job, "-"), ".textproto",
                          PolicyText(flags.job, *present));
  if (!file.ok()) return Fail(file.status());

  absl::StatusOr<std::optional<v1::SyncPolicy>> policy = std::nullopt;
  while (true) {
    policy = EditOnce(context, flags, *present, file->path());
    if (policy.ok()) break;
    // Only what an edit can mend is edited again.
    if (!absl::IsInvalidArgument(policy.status()) || !HasTerminal()) {
      return FailAndKeep(policy.status(), flags.job, *file);
    }
    Say(absl::StrCat(policy.status().message(), "\n"));
    if (!Ask("Edit again?", Answer::kYes)) {
      return FailAndKeep(policy.status(), flags.job, *file);
    }
  }
  if (!policy->has_value()) return ConcludeUnchanged(context, *present);

  const absl::StatusOr<PolicyDiff> diff = Compare(
      context, flags.job, Named(*present), {.name = "the edited policy", .policy = **policy});
  if (!diff.ok()) return FailAndKeep(diff.status(), flags.job, *file);
  Say(RenderDiff(*diff));
  if (!flags.yes && !Ask(absl::StrCat("Change the policy of job ", flags.job, "?"), Answer::kNo)) {
    return FailAndKeep(absl::CancelledError("the change was not confirmed"), flags.job, *file);
  }
  absl::StatusOr<v1::SyncPolicyRevision> revision =
      Send(context, flags.job, **policy, present->etag(), flags.send);
  if (!revision.ok()) return FailAndKeep(revision.status(), flags.job, *file);
  return Conclude(context, flags.job, *present, *std::move(revision), flags.send);
}

}  // namespace

void AddEditCommand(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand(
      "edit",
      "edit the newest policy as text with $VISUAL, $EDITOR or vi, then confirm the change");
  auto flags = std::make_shared<EditCommandFlags>();
  AddJob(command, &flags->job);
  command->add_flag("--yes", flags->yes, "change without asking");
  AddSendFlags(command, Checking::kNotOffered, &flags->send);
  command->footer("Text that is left as it was, or emptied, changes nothing. If the change fails, "
                  "the text is kept.");
  command->callback([=] { *chosen = [=] { return EditPolicy(*context, *flags); }; });
  AddExample(command, "policy edit mnist --reason 'less traffic' --wait");
}

}  // namespace lockstep
