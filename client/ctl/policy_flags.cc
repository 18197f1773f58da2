#include "client/ctl/policy_flags.h"

#include <cstdint>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/ctl/options.h"
#include "client/ctl/policy_files.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

constexpr char kLists[] = "Which buffers";
constexpr char kHow[] = "How and from whom";
constexpr char kWhen[] = "When (of buffers that no rule with its own schedule matches)";
constexpr char kParameters[] = "Parameters";
constexpr char kSending[] = "The change itself";

constexpr char kEditHelp[] =
    R"(A PATTERN is on full buffer names: * within a component, ** across, a leading '**.' also
none; re:EXPRESSION is a regular expression on the whole name.

A RULE is one argument: PATTERN OPERATION [KEY=VALUE]... The first rule that matches a buffer
decides; what it does not name is the policy's. OPERATION is broadcast, mean, mean-by-samples,
sum, min, max, none (each rank keeps its own) or default (the policy's). Keys:
  root=RANK or root=WORKER
  every-forwards=K, every-steps=N, at-start=on|off, before-evaluation=on|off,
  before-checkpoint=on|off: with one of these the rule has its own schedule, in which those that
  are not named are off, but for at-start)";

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
              const std::string& type, const std::string& help, const std::string& group) {
  command->add_option(absl::StrCat("--", name), *values, absl::StrCat(help, " (repeatable)"))
      ->allow_extra_args(false)
      ->type_name(type)
      ->group(group);
}

}  // namespace

CLI::Option* AddEditFlags(CLI::App* command, EditFlags* flags,
                          const std::vector<std::string>& examples) {
  PolicyEdit& edit = flags->edit;
  CLI::Option* from = command->add_option(
      "--from", flags->from,
      "begin with the policy in this file, textproto or JSON, not the present one; '-': standard "
      "input");
  from->type_name(kFileType);
  AddSwitch(command, "broadcast-buffers", &edit.broadcast_buffers,
            "the master switch while training runs", kLists);
  AddTexts(command, "allow", &edit.allow, "PATTERN", "add a pattern to the allow list", kLists);
  AddTexts(command, "ignore", &edit.ignore, "PATTERN", "add a pattern to the ignore list",
           kLists);
  command->add_flag("--clear-allow", edit.clear_allow, "empty the allow list before --allow")
      ->group(kLists);
  command->add_flag("--clear-ignore", edit.clear_ignore, "empty the ignore list before --ignore")
      ->group(kLists);

  AddTexts(command, "rule", &edit.rules, "RULE", "append a rule, see below", kHow);
  command->add_flag("--clear-rules", edit.clear_rules, "drop all rules before --rule")
      ->group(kHow);
  command
      ->add_option("--operation", edit.operation,
                   "of buffers that no rule matches; default: broadcast")
      ->type_name("OPERATION")
      ->group(kHow);
  command->add_option("--root", edit.root, "whose values win: a rank or a worker's name")
      ->type_name("ROOT")
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
            "compare parameters among ranks after every n-th step, end the epoch if they differ",
            kParameters);
  command->footer(kEditHelp);
  for (const std::string& example : examples) AddExample(command, example);
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
