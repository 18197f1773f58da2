#include "security/authorization.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "security/authentication.h"

namespace lockstep {
namespace {

// Names of what a call's context says of its caller. gRPC sets no such names itself.
constexpr char kName[] = "lockstep-name";
constexpr char kJob[] = "lockstep-job";
constexpr char kWorker[] = "lockstep-worker";

absl::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

std::vector<std::string> Values(const grpc::AuthContext& context, const char* property) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : context.FindPropertyValues(property)) {
    values.emplace_back(View(value));
  }
  return values;
}

class Authorizer final : public grpc::AuthMetadataProcessor {
 public:
  explicit Authorizer(std::shared_ptr<TokenFile> tokens) : tokens_(std::move(tokens)) {}

  // A look at tables, and once a second at a small file.
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata*) override {
    const absl::Status status = Check(metadata, context, consumed);
    return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
  }

 private:
  absl::Status Check(const InputMetadata& metadata, grpc::AuthContext* context,
                     OutputMetadata* consumed) {
    Shown shown;
    const auto header = metadata.find("authorization");
    if (header != metadata.end()) {
      shown.authorization = std::string(View(header->second));
      consumed->emplace("authorization", *shown.authorization);
    }
    for (std::string& name : Values(*context, GRPC_X509_CN_PROPERTY_NAME)) {
      shown.common_name = std::move(name);
    }
    shown.dns_names = Values(*context, GRPC_X509_SAN_PROPERTY_NAME);
    shown.has_certificate = !shown.common_name.empty() || !shown.dns_names.empty();
    LOCKSTEP_ASSIGN_OR_RETURN(const Caller caller, Authenticate(shown, tokens_.get()));
    const auto path = metadata.find(":path");
    LOCKSTEP_RETURN_IF_ERROR(
        CheckMayCall(caller.roles, path == metadata.end() ? "" : View(path->second)));
    context->AddProperty(kName, caller.name);
    for (const std::string& job : caller.jobs) context->AddProperty(kJob, job);
    for (const std::string& worker : caller.workers) context->AddProperty(kWorker, worker);
    return absl::OkStatus();
  }

  const std::shared_ptr<TokenFile> tokens_;
};

}  // namespace

void Authorize(grpc::ServerCredentials* credentials, std::shared_ptr<TokenFile> tokens) {
  credentials->SetAuthMetadataProcessor(std::make_shared<Authorizer>(std::move(tokens)));
}

bool IsAuthorized(const grpc::AuthContext& context) { return !Values(context, kName).empty(); }

Caller CallerOf(const grpc::AuthContext& context) {
  Caller caller;
  for (std::string& name : Values(context, kName)) caller.name = std::move(name);
  for (std::string& job : Values(context, kJob)) caller.jobs.insert(std::move(job));
  for (std::string& worker : Values(context, kWorker)) caller.workers.insert(std::move(worker));
  return caller;
}

}  // namespace lockstep
