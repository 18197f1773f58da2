#include "client/ctl/files.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <utility>

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

absl::StatusOr<ScratchFile> ScratchFile::Create(const std::string& stem,
                                                const std::string& suffix,
                                                const std::string& text) {
  const char* folder = std::getenv("TMPDIR");
  std::string path = absl::StrCat(folder == nullptr || *folder == '\0' ? "/tmp" : folder, "/",
                                  stem, "XXXXXX", suffix);
  const int fd = mkstemps(path.data(), static_cast<int>(suffix.size()));
  if (fd < 0) {
    return absl::InternalError(
        absl::StrCat("cannot make the file ", path, ": ", std::strerror(errno)));
  }
  ScratchFile file(path);
  close(fd);
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out.good()) return absl::InternalError(absl::StrCat("cannot write ", path));
  return file;
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : path_(std::move(other.path_)), is_kept_(other.is_kept_) {
  other.path_.clear();
}

ScratchFile::~ScratchFile() {
  if (!path_.empty() && !is_kept_) std::remove(path_.c_str());
}

}  // namespace lockstep
