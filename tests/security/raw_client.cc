#include "tests/security/raw_client.h"

#include <chrono>

#include "common/base/check.h"
#include "common/base/files.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/convert/status_convert.h"
#include "security/tls.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kDeadline(20);

std::shared_ptr<grpc::ChannelCredentials> Credentials(const TlsFiles& tls) {
  const auto credentials = ChannelCredentialsOf(tls);
  LOCKSTEP_CHECK(credentials.ok());
  return *credentials;
}

std::shared_ptr<grpc::Channel> Dial(const std::string& address,
                                    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments settings;
  settings.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  settings.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  settings.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel(address, credentials, settings);
}

}  // namespace

std::unique_ptr<grpc::ClientContext> NewContext() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + kDeadline);
  return context;
}

std::shared_ptr<grpc::ChannelCredentials> ShowNothing(const std::string& authorities) {
  const absl::StatusOr<std::string> roots = ReadFile(authorities);
  LOCKSTEP_CHECK(roots.ok());
  return grpc::SslCredentials({.pem_root_certs = *roots});
}

RawClient::RawClient(const std::string& address, const TlsFiles& tls)
    : RawClient(address, Credentials(tls)) {}

RawClient::RawClient(const std::string& address,
                     const std::shared_ptr<grpc::ChannelCredentials>& credentials)
    : channel_(Dial(address, credentials)),
      jobs_(v1::JobService::NewStub(channel_)),
      policies_(v1::SyncPolicyService::NewStub(channel_)),
      membership_(v1::MembershipService::NewStub(channel_)) {}

absl::Status RawClient::Call(const std::string& method, const std::string& request,
                             const std::vector<std::pair<std::string, std::string>>& metadata) {
  grpc::GenericStub stub(channel_);
  const std::unique_ptr<grpc::ClientContext> context = NewContext();
  for (const auto& [key, value] : metadata) context->AddMetadata(key, value);
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const grpc::ByteBuffer bytes(&slice, 1);
  const auto call = stub.PrepareUnaryCall(context.get(), method, bytes, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  LOCKSTEP_CHECK(queue.Next(&tag, &ok));
  return FromGrpcStatus(status);
}

absl::Status RawClient::Attend(const std::vector<v1::AttendRequest>& messages) {
  const std::unique_ptr<grpc::ClientContext> context = NewContext();
  const auto stream = membership_->Attend(context.get());
  for (const v1::AttendRequest& message : messages) stream->Write(message);
  v1::AttendResponse ignored;
  while (stream->Read(&ignored)) {
  }
  return FromGrpcStatus(stream->Finish());
}

}  // namespace lockstep
