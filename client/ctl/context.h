// What every command of lockstepctl has at hand, and how commands end.
#ifndef LOCKSTEP_CLIENT_CTL_CONTEXT_H_
#define LOCKSTEP_CLIENT_CTL_CONTEXT_H_

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/client.h"

namespace lockstep {

// Part of the command line's contract: scripts rely on the numbers.
enum class ExitCode { kOk = 0, kFailed = 1, kUsage = 2, kUnreachable = 3, kWaitTimedOut = 4 };

struct Context {
  std::string coordinator = "127.0.0.1:7070";
  TlsFiles tls;
  bool json = false;
  std::optional<absl::Duration> timeout;
  std::unique_ptr<Client> client;

  // For one answer.
  CallOptions call() const { return {.timeout = timeout.value_or(absl::Seconds(10))}; }
  // For an effect to show.
  absl::Duration wait() const { return timeout.value_or(absl::Seconds(60)); }
};

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

inline ExitCode FailUsage(const std::string& why) {
  std::fprintf(stderr, "lockstepctl: %s\nRun with --help for more information.\n", why.c_str());
  return ExitCode::kUsage;
}

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_CONTEXT_H_
