#include "client/ctl/policy_flags.h"

#include <cstdint>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/ctl/files.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

constexpr char kLists[] = "Which buffers";
constexpr char kHow[] = "How and from whom";
constexpr char kWhen[] = "When (of buffers that no rule with its own schedule matches)";
constexpr char kParameters[] = "Parameters";
constexpr char kSending[] = "The change itself";

void AddSwitch(CLI::App* command, const std::string& name, std::optional<bool>* value,
               const std::string& help, const std::string& group) {
  command
      ->add_flag_function(
          absl::StrCat("--", name, ",!--no-", name),
          [value](std::int64_t count) { *value = count > 0; }, help)
      ->group(group);
}

void AddPeriod(CLI::App* command, const std::string& name, std::optional<std::int64_t>* value,
               const std::string& help, const std::string& group) {
  command->add_option(absl::StrCat("--", name), *value, absl::StrCat(help, "; 0: never"))
      ->group(group);
}

void AddTexts(CLI::App* command, const std::string& name, std::vector<std::string>* values,
              const std::string& help, const std::string& group) {
  command->add_option(absl::StrCat("--", name), *values, absl::StrCat(help, " (repeatable)"))
      ->allow_extra_args(false)
      ->group(group);
}

}  // namespace

CLI::Option* AddEditFlags(CLI::App* command, EditFlags* flags) {
  PolicyEdit& edit = flags->edit;
  CLI::Option* from = command->add_option(
      "--from", flags->from,
      "FILE: begin with the policy in it, textproto or JSON, not the present one; '-': standard "
      "input");
  AddSwitch(command, "broadcast-buffers", &edit.broadcast_buffers,
            "the master switch while training runs", kLists);
  AddTexts(command, "allow", &edit.allow, "add a pattern to the allow list", kLists);
  AddTexts(command, "ignore", &edit.ignore, "add a pattern to the ignore list", kLists);
  command->add_flag("--clear-allow", edit.clear_allow, "empty the allow list before --allow")
      ->group(kLists);
  command->add_flag("--clear-ignore", edit.clear_ignore, "empty the ignore list before --ignore")
      ->group(kLists);

  AddTexts(command, "rule", &edit.rules,
           "append the rule 'PATTERN OPERATION [KEY=VALUE]...'; keys: root, every-forwards, "
           "every-steps, and at-start, before-evaluation, before-checkpoint (on or off). Naming "
           "one of the last five gives the rule its own schedule, in which the others are off, but "
           "for at-start",
           kHow);
  command->add_flag("--clear-rules", edit.clear_rules, "drop all rules before --rule")
      ->group(kHow);
  command
      ->add_option("--operation", edit.operation,
                   "of buffers that no rule matches: broadcast, mean, mean-by-samples, sum, min, "
                   "max, none or default")
      ->group(kHow);
  command->add_option("--root", edit.root, "whose values win: a rank or a worker's name")
      ->group(kHow);
  command->add_flag("--clear-root", edit.clear_root, "back to the lowest rank")->group(kHow);
  AddSwitch(command, "skip-unchanged", &edit.skip_unchanged,
            "send no buffer that no rank has changed", kHow);

  AddSwitch(command, "at-start", &edit.at_start, "sync when an epoch starts", kWhen);
  AddPeriod(command, "every-forwards", &edit.every_forwards,
            "sync before every k-th training forward", kWhen);
  AddPeriod(command, "every-steps", &edit.every_steps, "sync after every n-th step", kWhen);
  AddSwitch(command, "before-evaluation", &edit.before_evaluation, "sync before each evaluation",
            kWhen);
  AddSwitch(command, "before-checkpoint", &edit.before_checkpoint, "sync before each checkpoint",
            kWhen);

  AddSwitch(command, "parameters-at-start", &edit.parameters_at_start,
            "broadcast parameters when an epoch starts", kParameters);
  AddPeriod(command, "parameters-every-steps", &edit.parameters_every_steps,
            "broadcast parameters after every n-th step", kParameters);
  AddPeriod(command, "check-parameters-every-steps", &edit.check_parameters_every_steps,
            "compare parameters among ranks after every n-th step; a difference ends the epoch",
            kParameters);
  return from;
}

absl::StatusOr<PolicyEdit> ReadEdit(const EditFlags& flags) {
  PolicyEdit edit = flags.edit;
  if (!flags.from.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(edit.base, ReadPolicy(flags.from));
  }
  return edit;
}

void AddSendFlags(CLI::App* command, Checking checking, SendFlags* flags) {
  const char* user = std::getenv("USER");
  if (user != nullptr) flags->author = user;
  command->add_option("--reason", flags->reason, "why, for the history")->group(kSending);
  command->add_option("--author", flags->author, "who, for the history; default: $USER")
      ->group(kSending);
  command
      ->add_flag("--allow-unmatched", flags->allow_unmatched,
                 "accept patterns that match no buffer")
      ->group(kSending);
  CLI::Option* wait =
      command
          ->add_flag("--wait", flags->wait,
                     "wait until it took effect on all workers, up to --timeout (1m)")
          ->group(kSending);
  if (checking == Checking::kNotOffered) return;
  command->add_flag("--validate-only", flags->validate_only, "check, change nothing")
      ->excludes(wait)
      ->group(kSending);
}

}  // namespace lockstep
