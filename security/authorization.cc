#include "security/authorization.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

// Names of what a call's context says of its caller. gRPC sets no such names itself.
constexpr char kName[] = "lockstep-name";
constexpr char kJob[] = "lockstep-job";
constexpr char kWorker[] = "lockstep-worker";

constexpr absl::string_view kScheme = "bearer ";

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
    LOCKSTEP_ASSIGN_OR_RETURN(const Caller caller, Identify(metadata, *context, consumed));
    const auto path = metadata.find(":path");
    LOCKSTEP_RETURN_IF_ERROR(
        CheckMayCall(caller.roles, path == metadata.end() ? "" : View(path->second)));
    context->AddProperty(kName, caller.name);
    for (const std::string& job : caller.jobs) context->AddProperty(kJob, job);
    for (const std::string& worker : caller.workers) context->AddProperty(kWorker, worker);
    return absl::OkStatus();
  }

  absl::StatusOr<Caller> Identify(const InputMetadata& metadata, const grpc::AuthContext& context,
                                  OutputMetadata* consumed) {
    const auto header = metadata.find("authorization");
    if (header != metadata.end()) {
      const absl::string_view value = View(header->second);
      consumed->emplace("authorization", std::string(value));
      if (tokens_ == nullptr) {
        return absl::UnauthenticatedError(
            "this coordinator knows no tokens (--tokens); show a certificate instead");
      }
      if (!absl::StartsWithIgnoreCase(value, kScheme)) {
        return absl::UnauthenticatedError("the authorization is none of the kind 'Bearer TOKEN'");
      }
      return tokens_->Find(absl::StripAsciiWhitespace(value.substr(kScheme.size())));
    }
    const std::vector<std::string> common_names = Values(context, GRPC_X509_CN_PROPERTY_NAME);
    const std::vector<std::string> names = Values(context, GRPC_X509_SAN_PROPERTY_NAME);
    if (common_names.empty() && names.empty()) {
      return absl::UnauthenticatedError("the caller shows neither a certificate nor a token");
    }
    return CallerOfCertificate(common_names.empty() ? "" : common_names[0], names);
  }

  const std::shared_ptr<TokenFile> tokens_;
};

}  // namespace

void Authorize(grpc::ServerCredentials* credentials, std::shared_ptr<TokenFile> tokens) {
  credentials->SetAuthMetadataProcessor(std::make_shared<Authorizer>(std::move(tokens)));
}

Caller CallerOf(const grpc::AuthContext& context) {
  Caller caller;
  for (std::string& name : Values(context, kName)) caller.name = std::move(name);
  for (std::string& job : Values(context, kJob)) caller.jobs.insert(std::move(job));
  for (std::string& worker : Values(context, kWorker)) caller.workers.insert(std::move(worker));
  return caller;
}

}  // namespace lockstep
