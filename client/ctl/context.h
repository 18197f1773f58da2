// What every command of lockstepctl has at hand, and how commands end.
#ifndef LOCKSTEP_CLIENT_CTL_CONTEXT_H_
#define LOCKSTEP_CLIENT_CTL_CONTEXT_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/ctl/connection.h"
#include "client/ctl/style.h"

namespace lockstep {

// Part of the command line's contract: scripts rely on the numbers.
enum class ExitCode { kOk = 0, kFailed = 1, kUsage = 2, kUnreachable = 3, kWaitTimedOut = 4 };

struct Context : Connection {
  std::string config_path;  // as ConfigPath()
  std::string name;         // of the saved connection, as asked for; empty: the current one
  bool json = false;
  Color color = Color::kOff;  // of what is printed
  std::optional<absl::Duration> timeout;
  // A chosen command that calls no coordinator clears it.
  bool needs_client = true;
  std::unique_ptr<Client> client;

  // For one answer.
  CallOptions call() const { return {.timeout = timeout.value_or(absl::Seconds(10))}; }
  // For an effect to show.
  absl::Duration wait() const { return timeout.value_or(absl::Seconds(60)); }
};

// What a chosen command does.
using Command = std::function<ExitCode()>;

inline void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// What is no result goes to standard error.
inline void Say(const std::string& text) { std::fprintf(stderr, "%s", text.c_str()); }

// "lockstepctl: ABORTED: ..." on standard error.
inline ExitCode Fail(const absl::Status& why) {
  std::fprintf(stderr, "lockstepctl: %s\n", why.ToString().c_str());
  return absl::IsUnavailable(why) ? ExitCode::kUnreachable : ExitCode::kFailed;
}

inline ExitCode FailConfig(const absl::Status& why) {
  std::fprintf(stderr, "lockstepctl: %s\n", std::string(why.message()).c_str());
  return ExitCode::kUsage;
}

inline ExitCode FailUsage(const std::string& why) {
  std::fprintf(stderr, "lockstepctl: %s\nRun with --help for more information.\n", why.c_str());
  return ExitCode::kUsage;
}

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_CONTEXT_H_
