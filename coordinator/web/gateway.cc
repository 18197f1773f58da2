#include "coordinator/web/gateway.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "coordinator/rpc/in_process_caller.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/convert/status_convert.h"
#include "security/roles.h"

namespace lockstep {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;

constexpr std::chrono::seconds kDeadline(10);
constexpr absl::string_view kPackage = "/lockstep.v1.";

// Errors: NotFound, Unimplemented.
absl::StatusOr<const MethodDescriptor*> FindMethod(absl::string_view path) {
  absl::string_view name = path;
  const bool is_ours = absl::ConsumePrefix(&name, kPackage);
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  const auto* const service =
      is_ours && parts.size() == 2
          ? DescriptorPool::generated_pool()->FindServiceByName("lockstep.v1." + parts[0])
          : nullptr;
  const MethodDescriptor* const method =
      service == nullptr ? nullptr : service->FindMethodByName(parts[1]);
  if (method == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no method ", path.substr(0, 200)));
  }
  if (method->client_streaming() || method->server_streaming()) {
    return absl::UnimplementedError(
        absl::StrCat(path, " streams, and is served over gRPC alone"));
  }
  return method;
}

std::unique_ptr<Message> NewMessage(const google::protobuf::Descriptor* type) {
  return std::unique_ptr<Message>(
      MessageFactory::generated_factory()->GetPrototype(type)->New());
}

absl::StatusOr<std::unique_ptr<Message>> ParseJson(const google::protobuf::Descriptor* type,
                                                   const std::string& json) {
  std::unique_ptr<Message> message = NewMessage(type);
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, message.get());
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is no JSON of ", type->name(), ": ",
                     absl::string_view(parsed.message().data(), parsed.message().size())));
  }
  return message;
}

absl::StatusOr<std::string> ToJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!printed.ok()) return absl::InternalError("the answer cannot be written as JSON");
  return json;
}

absl::Status CallUnary(const std::shared_ptr<grpc::Channel>& channel, const HttpRequest& request,
                       const Message& in, Message* out) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  SetInProcessCaller({.caller = request.caller, .host = request.from}, &context);
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
    LOCKSTEP_ASSIGN_OR_RETURN(const MethodDescriptor* const method, FindMethod(request.path));
    if (!is_open_) LOCKSTEP_RETURN_IF_ERROR(CheckMayCall(request.caller.roles, request.path));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Message> in,
                              ParseJson(method->input_type(), request.body));
    const std::unique_ptr<Message> out = NewMessage(method->output_type());
    LOCKSTEP_RETURN_IF_ERROR(CallUnary(channel_, request, *in, out.get()));
    return ToJson(*out);
  }();
  if (!answer.ok()) return ErrorResponse(answer.status());
  return {.type = "application/json", .body = *answer};
}

}  // namespace lockstep
