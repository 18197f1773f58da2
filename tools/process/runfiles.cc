#include "tools/process/runfiles.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {
namespace {

std::vector<std::string> Roots() {
  std::vector<std::string> roots;
  for (const char* variable : {"TEST_SRCDIR", "RUNFILES_DIR"}) {
    if (const char* root = std::getenv(variable)) roots.push_back(root);
  }
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) roots.push_back(self.string() + ".runfiles");
  return roots;
}

}  // namespace

absl::StatusOr<std::string> FindRunfile(absl::string_view path) {
  const std::vector<std::string> roots = Roots();
  for (const std::string& root : roots) {
    const std::string candidate = absl::StrCat(root, "/", path);
    if (access(candidate.c_str(), F_OK) == 0) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("there is no ", path, " under ",
                                          absl::StrJoin(roots, " or "),
                                          "; was the program built by Bazel?"));
}

}  // namespace lockstep
