// ScratchFolder: a new folder that goes with everything in it. Used by one thread.
#ifndef LOCKSTEP_TESTS_BENCH_SCRATCH_FOLDER_H_
#define LOCKSTEP_TESTS_BENCH_SCRATCH_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace lockstep {

class ScratchFolder {
 public:
  ScratchFolder() {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~ScratchFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }  // empty: it could not be made

 private:
  std::string path_ = std::filesystem::temp_directory_path().string() + "/lockstep-bench-XXXXXX";
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_SCRATCH_FOLDER_H_
