// Sync policies from files or standard input.
#ifndef LOCKSTEP_CLIENT_CTL_FILES_H_
#define LOCKSTEP_CLIENT_CTL_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

// `path` "-" is standard input. Errors: NotFound: cannot be read;
//   InvalidArgument: too long.
absl::StatusOr<std::string> ReadText(const std::string& path);

// Errors: those of ReadText() and ParsePolicy().
absl::StatusOr<v1::SyncPolicy> ReadPolicy(const std::string& path);

// A new file in $TMPDIR or /tmp that nobody else can read, removed in the end
// unless it is kept. Move-only.
class ScratchFile {
 public:
  // The name begins with `stem` and ends with `suffix`. Errors: Internal.
  static absl::StatusOr<ScratchFile> Create(const std::string& stem, const std::string& suffix,
                                            const std::string& text);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile();

  const std::string& path() const { return path_; }
  void Keep() { is_kept_ = true; }

 private:
  explicit ScratchFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
  bool is_kept_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_FILES_H_
