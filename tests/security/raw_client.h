// RawClient: a client that may say anything: bytes for messages, any metadata, streams by hand.
// Used by one thread.
#ifndef LOCKSTEP_TESTS_SECURITY_RAW_CLIENT_H_
#define LOCKSTEP_TESTS_SECURITY_RAW_CLIENT_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "lockstep/v1/membership.grpc.pb.h"
#include "lockstep/v1/policy.grpc.pb.h"
#include "security/tls_files.h"

namespace lockstep {

class RawClient {
 public:
  // A connection of its own.
  RawClient(const std::string& address, const TlsFiles& tls);
  RawClient(const std::string& address,
            const std::shared_ptr<grpc::ChannelCredentials>& credentials);

  // What the call ends with. `method`: "/package.Service/Method"; `request`: the message's bytes.
  absl::Status Call(const std::string& method, const std::string& request,
                    const std::vector<std::pair<std::string, std::string>>& metadata = {});

  // With what an Attend stream ends on which these are sent, and nothing else.
  absl::Status Attend(const std::vector<v1::AttendRequest>& messages);

  v1::JobService::Stub& jobs() { return *jobs_; }
  v1::SyncPolicyService::Stub& policies() { return *policies_; }
  v1::MembershipService::Stub& membership() { return *membership_; }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::unique_ptr<v1::SyncPolicyService::Stub> policies_;
  const std::unique_ptr<v1::MembershipService::Stub> membership_;
};

// Of one who checks the server's certificate and shows none.
std::shared_ptr<grpc::ChannelCredentials> ShowNothing(const std::string& authorities);

// With the deadline that every call of a test has.
std::unique_ptr<grpc::ClientContext> NewContext();

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SECURITY_RAW_CLIENT_H_
