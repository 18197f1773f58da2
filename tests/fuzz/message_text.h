// Messages in the forms in which inputs of fuzz targets hold them. Pure.
#ifndef LOCKSTEP_TESTS_FUZZ_MESSAGE_TEXT_H_
#define LOCKSTEP_TESTS_FUZZ_MESSAGE_TEXT_H_

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace lockstep {

// Sets `message` to what `text` is in the form: 't' text format, 'j' JSON, 'x' wire bytes with
// C's escapes, any other wire bytes. False: it is none.
bool ReadMessage(char form, absl::string_view text, google::protobuf::Message* message);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_FUZZ_MESSAGE_TEXT_H_
