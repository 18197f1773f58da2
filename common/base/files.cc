#include "common/base/files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno == 0 ? EIO : errno, absl::StrCat("cannot ", what, " ", path));
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // Of an empty file nothing can be taken, which is no error.
  if (file && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad() || !text) return Failed("read", path);
  return text.str();
}

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  const std::string draft = absl::StrCat(path, ".", getpid(), ".tmp");
  errno = 0;
  std::ofstream file(draft, std::ios::binary);
  file << text;
  file.close();
  if (file && std::rename(draft.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const absl::Status failed = Failed("write", path);
  std::remove(draft.c_str());
  return failed;
}

}  // namespace lockstep
