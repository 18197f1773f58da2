#include "coordinator/rpc/in_process_caller.h"

#include <sys/random.h>

#include "common/base/check.h"

namespace lockstep {
namespace {

// "-bin": any bytes.
constexpr char kKey[] = "lockstep-key-bin";
constexpr char kName[] = "lockstep-name-bin";
constexpr char kJob[] = "lockstep-job-bin";
constexpr char kWorker[] = "lockstep-worker-bin";
constexpr char kHost[] = "lockstep-host-bin";

}  // namespace

std::string NewInProcessKey() {
  std::string key(32, '\0');
  LOCKSTEP_CHECK(getrandom(key.data(), key.size(), 0) == static_cast<ssize_t>(key.size()));
  return key;
}

void SetInProcessCaller(const InProcessCaller& caller, const std::string& key,
                        grpc::ClientContext* context) {
  context->AddMetadata(kKey, key);
  context->AddMetadata(kName, caller.caller.name);
  context->AddMetadata(kHost, caller.host);
  for (const std::string& job : caller.caller.jobs) context->AddMetadata(kJob, job);
  for (const std::string& worker : caller.caller.workers) context->AddMetadata(kWorker, worker);
}

std::optional<InProcessCaller> FindInProcessCaller(const grpc::ServerContextBase& context,
                                                   const std::string& key) {
  InProcessCaller found;
  bool has_key = false;
  for (const auto& [name, value] : context.client_metadata()) {
    const std::string text(value.data(), value.size());
    if (name == kKey) has_key = text == key;
    if (name == kName) found.caller.name = text;
    if (name == kHost) found.host = text;
    if (name == kJob) found.caller.jobs.insert(text);
    if (name == kWorker) found.caller.workers.insert(text);
  }
  if (!has_key) return std::nullopt;
  return found;
}

}  // namespace lockstep
