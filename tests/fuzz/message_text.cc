#include "tests/fuzz/message_text.h"

#include <string>

#include "absl/strings/escaping.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"

namespace lockstep {
namespace {

class Silence : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

}  // namespace

bool ReadMessage(char form, absl::string_view text, google::protobuf::Message* message) {
  const google::protobuf::LogSilencer no_warnings;
  const std::string copied(text);
  switch (form) {
    case 't': {
      Silence silence;
      google::protobuf::TextFormat::Parser parser;
      parser.RecordErrorsTo(&silence);
      return parser.ParseFromString(copied, message);
    }
    case 'j':
      return google::protobuf::util::JsonStringToMessage(copied, message).ok();
    case 'x': {
      std::string wire;
      return absl::CUnescape(copied, &wire) && message->ParseFromString(wire);
    }
    default:
      return message->ParseFromString(copied);
  }
}

}  // namespace lockstep
