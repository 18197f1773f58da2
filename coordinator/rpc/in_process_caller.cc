#include "coordinator/rpc/in_process_caller.h"

#include "absl/strings/match.h"

namespace lockstep {
namespace {

// "-bin": any bytes.
constexpr char kName[] = "lockstep-name-bin";
constexpr char kJob[] = "lockstep-job-bin";
constexpr char kWorker[] = "lockstep-worker-bin";
constexpr char kHost[] = "lockstep-host-bin";

}  // namespace

void SetInProcessCaller(const InProcessCaller& caller, grpc::ClientContext* context) {
  context->AddMetadata(kName, caller.caller.name);
  context->AddMetadata(kHost, caller.host);
  for (const std::string& job : caller.caller.jobs) context->AddMetadata(kJob, job);
  for (const std::string& worker : caller.caller.workers) context->AddMetadata(kWorker, worker);
}

std::optional<InProcessCaller> FindInProcessCaller(const grpc::ServerContextBase& context) {
  if (!absl::StartsWith(context.peer(), "inproc")) return std::nullopt;
  InProcessCaller found;
  for (const auto& [key, value] : context.client_metadata()) {
    const std::string text(value.data(), value.size());
    if (key == kName) found.caller.name = text;
    if (key == kHost) found.host = text;
    if (key == kJob) found.caller.jobs.insert(text);
    if (key == kWorker) found.caller.workers.insert(text);
  }
  return found;
}

}  // namespace lockstep
