#include "client/ctl/files.h"

#include <cstddef>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxFileBytes = 4 << 20;

}  // namespace

absl::Status ReadJson(const std::string& path, google::protobuf::Message* message) {
  std::ifstream file;
  if (path != "-") file.open(path);
  std::istream& in = path == "-" ? std::cin : file;
  std::string text(kMaxFileBytes + 1, '\0');
  if (!in.good() || (in.read(text.data(), static_cast<std::streamsize>(text.size())), in.bad())) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path));
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has more than ", kMaxFileBytes, " bytes, the limit"));
  }
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, message);
  if (parsed.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, " is not a ",
                                                 message->GetDescriptor()->name(), " in JSON: ",
                                                 std::string(parsed.message())));
}

}  // namespace lockstep
