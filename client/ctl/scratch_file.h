// ScratchFile: a new file in $TMPDIR or /tmp that nobody else can read, removed in
// the end unless it is kept. Thread-compatible.
#ifndef LOCKSTEP_CLIENT_CTL_SCRATCH_FILE_H_
#define LOCKSTEP_CLIENT_CTL_SCRATCH_FILE_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace lockstep {

// Move-only.
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

#endif  // LOCKSTEP_CLIENT_CTL_SCRATCH_FILE_H_
