#include "coordinator/web/json_call.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"
// So that the services' descriptors are in the program.
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;

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
    return absl::NotFoundError(absl::StrCat("there is no method ", Quoted(path)));
  }
  if (method->client_streaming() || method->server_streaming()) {
    return absl::UnimplementedError(
        absl::StrCat(Quoted(path), " streams, and is served over gRPC alone"));
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
                     Quoted({parsed.message().data(), parsed.message().size()})));
  }
  return message;
}

}  // namespace

absl::StatusOr<JsonCall> ParseJsonCall(absl::string_view path, const std::string& json) {
  v1::Job::descriptor();
  v1::SyncPolicy::descriptor();
  LOCKSTEP_ASSIGN_OR_RETURN(const MethodDescriptor* const method, FindMethod(path));
  JsonCall call;
  LOCKSTEP_ASSIGN_OR_RETURN(call.request, ParseJson(method->input_type(), json));
  call.response = NewMessage(method->output_type());
  return call;
}

absl::StatusOr<std::string> ToJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!printed.ok()) return absl::InternalError("the answer cannot be written as JSON");
  return json;
}

}  // namespace lockstep
