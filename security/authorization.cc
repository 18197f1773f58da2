#include "security/authorization.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include <memory>
#include <string>
#include <vector>

#include "security/roles.h"

namespace lockstep {
namespace {

class RoleCheck final : public grpc::AuthMetadataProcessor {
 public:
  // A look at a table.
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata*, OutputMetadata*) override {
    std::vector<std::string> names;
    for (const grpc::string_ref& name :
         context->FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME)) {
      names.emplace_back(name.data(), name.size());
    }
    const auto path = metadata.find(":path");
    const absl::string_view method =
        path == metadata.end() ? absl::string_view()
                               : absl::string_view(path->second.data(), path->second.size());
    const absl::Status may = CheckMayCall(RolesOf(names), method);
    return may.ok() ? grpc::Status::OK
                    : grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                                   std::string(may.message()));
  }
};

}  // namespace

void Authorize(grpc::ServerCredentials* credentials) {
  credentials->SetAuthMetadataProcessor(std::make_shared<RoleCheck>());
}

}  // namespace lockstep
