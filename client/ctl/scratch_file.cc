#include "client/ctl/scratch_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep {

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
