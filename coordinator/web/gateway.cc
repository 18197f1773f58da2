#include "coordinator/web/gateway.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "coordinator/rpc/in_process_caller.h"
#include "coordinator/web/json_call.h"
#include "google/protobuf/message.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/convert/status_convert.h"
#include "security/roles.h"

namespace lockstep {
namespace {

using google::protobuf::Message;

constexpr std::chrono::seconds kDeadline(10);

absl::Status CallUnary(const std::shared_ptr<grpc::Channel>& channel, const std::string& key,
                       const HttpRequest& request, const Message& in, Message* out) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  SetInProcessCaller({.caller = request.caller, .host = request.from}, key, &context);
  grpc::CompletionQueue queue;
  const grpc::Slice slice(in.SerializeAsString());
  const grpc::ByteBuffer bytes(&slice, 1);
  const auto call =
      grpc::GenericStub(channel).PrepareUnaryCall(&context, request.path, bytes, &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  if (!queue.Next(&tag, &ok) || !ok) return absl::InternalError("the call was lost");
  if (!status.ok()) return FromGrpcStatus(status);
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!answer.Dump(&slices).ok()) return absl::InternalError("the answer cannot be read");
  for (const grpc::Slice& part : slices) {
    text.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  if (!out->ParseFromString(text)) return absl::InternalError("the answer cannot be read");
  return absl::OkStatus();
}

}  // namespace

HttpResponse Gateway::Call(const HttpRequest& request) const {
  const auto answer = [&]() -> absl::StatusOr<std::string> {
    if (!is_open_) LOCKSTEP_RETURN_IF_ERROR(CheckMayCall(request.caller.roles, request.path));
    LOCKSTEP_ASSIGN_OR_RETURN(const JsonCall call, ParseJsonCall(request.path, request.body));
    LOCKSTEP_RETURN_IF_ERROR(
        CallUnary(channel_, key_, request, *call.request, call.response.get()));
    return ToJson(*call.response);
  }();
  if (!answer.ok()) return ErrorResponse(answer.status());
  return {.type = "application/json", .body = *answer};
}

}  // namespace lockstep
