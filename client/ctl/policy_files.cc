#include "client/ctl/policy_files.h"

#include <cstddef>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/ctl/policy_text.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxFileBytes = 4 << 20;

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& path) {
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
  return text;
}

absl::StatusOr<v1::SyncPolicy> ReadPolicy(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return ParsePolicy(text, path == "-" ? "standard input" : path);
}

}  // namespace lockstep
