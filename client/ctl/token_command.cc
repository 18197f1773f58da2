#include "client/ctl/token_command.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/ctl/options.h"
#include "common/base/files.h"
#include "nlohmann/json.hpp"
#include "security/token_list.h"

namespace lockstep {
namespace {

struct NewToken {
  std::string name;
  std::vector<std::string> roles;
  std::vector<std::string> jobs;
  std::vector<std::string> workers;
  std::optional<absl::Duration> expires_in;
  std::string out;
};

// 256 random bits: nobody guesses it, nor finds it by its hash.
absl::StatusOr<std::string> MakeToken() {
  char bytes[32];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
    return absl::InternalError("the system gives no random bytes");
  }
  return absl::WebSafeBase64Escape(absl::string_view(bytes, sizeof(bytes)));
}

// For its owner alone to read, from the beginning.
absl::Status WriteSecret(const std::string& path, const std::string& text) {
  const mode_t before = umask(077);
  const absl::Status written = WriteFile(path, text);
  umask(before);
  return written;
}

ExitCode Make(const Context& context, const NewToken& made) {
  Caller caller = {.name = made.name,
                   .jobs = {made.jobs.begin(), made.jobs.end()},
                   .workers = {made.workers.begin(), made.workers.end()}};
  for (const std::string& role : made.roles) caller.roles.insert(*RoleOf(role));
  const absl::Time expires =
      made.expires_in ? absl::Now() + *made.expires_in : absl::InfiniteFuture();
  const absl::StatusOr<std::string> token = MakeToken();
  if (!token.ok()) return Fail(token.status());
  const absl::StatusOr<std::string> line = TokenLine(*token, caller, expires);
  if (!line.ok()) return FailUsage(std::string(line.status().message()));
  const absl::Status written = WriteSecret(made.out, absl::StrCat(*token, "\n"));
  if (!written.ok()) return Fail(written);
  if (context.json) {
    Print(absl::StrCat(nlohmann::json({{"token_file", made.out}, {"line", *line}}).dump(2), "\n"));
    return ExitCode::kOk;
  }
  Say(absl::StrCat("The token is in ", made.out,
                   "; a coordinator with this line in its file of tokens takes it:\n"));
  Print(absl::StrCat(*line, "\n"));
  return ExitCode::kOk;
}

}  // namespace

void AddTokenCommands(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* group = app->add_subcommand("token", "bearer tokens, instead of certificates: new");
  group->require_subcommand(1);
  CLI::App* command = group->add_subcommand(
      "new", "makes a token, and prints the line by which a coordinator (--tokens) knows it");
  auto made = std::make_shared<NewToken>();
  command->add_option("name", made->name, "whose it is, for histories")->required();
  command->add_option("--role", made->roles, "what its holder may do; several times: several")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>{"viewer", "worker", "operator"}));
  command->add_option("--only-job", made->jobs, "bind it to this job; several times: several");
  command->add_option("--only-worker", made->workers, "let it attend under this name alone");
  AddDuration(command, "--expires-in", &made->expires_in,
              "how long it is good, as 720h; default: for ever");
  command->add_option("--out", made->out, "file for the token, which its owner alone can read")
      ->required()
      ->type_name(kFileType);
  AddExample(command,
             "token new alice --role operator --expires-in 720h --out alice.token");
  command->callback([=] {
    context->needs_client = false;
    *chosen = [=] { return Make(*context, *made); };
  });
}

}  // namespace lockstep
