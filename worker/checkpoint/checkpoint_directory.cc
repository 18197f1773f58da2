#include "worker/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/checkpoint_layout.h"

namespace lockstep {
namespace {

// A manifest of kMaxTensors with long names stays below.
constexpr std::int64_t kMaxManifestBytes = std::int64_t{4} << 30;

// Newest first.
absl::StatusOr<std::vector<std::int64_t>> StepsIn(const FileSystem& files,
                                                  const std::string& root) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(root));
  std::vector<std::int64_t> steps;
  for (const std::string& name : names) {
    if (const std::optional<std::int64_t> step = StepOfDirectory(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::ranges::greater());
  return steps;
}

bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsFailedPrecondition(status);
}

bool IsOfCheckpoint(absl::string_view name) {
  const bool is_known = name == kManifestFile || name == kReplicatedFile ||
                        (absl::StartsWith(name, "shard-") && absl::EndsWith(name, ".safetensors"));
  return is_known || absl::EndsWith(name, ".tmp");
}

absl::Status OkIfGone(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace

absl::StatusOr<CheckpointManifest> ReadManifest(const FileSystem& files, const std::string& root,
                                                std::int64_t step) {
  const std::string path = absl::StrCat(root, "/", StepDirectory(step), "/", kManifestFile);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadFile(files, path, kMaxManifestBytes));
  absl::StatusOr<CheckpointManifest> manifest = ManifestFromText(text);
  if (!manifest.ok()) {
    return absl::Status(manifest.status().code(),
                        absl::StrCat("file ", path, ": ", manifest.status().message()));
  }
  if (manifest->id.step != step) {
    return absl::DataLossError(absl::StrCat("file ", path, " is of step ", manifest->id.step,
                                            "; expected ", step));
  }
  return manifest;
}

absl::StatusOr<std::int64_t> FindLatest(const FileSystem& files, const std::string& root) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::int64_t> steps, StepsIn(files, root));
  std::vector<std::string> passed_over;
  for (const std::int64_t step : steps) {
    const absl::Status status = ReadManifest(files, root, step).status();
    if (status.ok()) return step;
    if (IsDamage(status)) {
      LogWarning("a checkpoint is passed over: ", status.message());
    } else if (!absl::IsNotFound(status)) {
      return status;
    }
    passed_over.push_back(absl::IsNotFound(status)
                              ? absl::StrCat(StepDirectory(step), " has no ", kManifestFile)
                              : std::string(status.message()));
  }
  return absl::NotFoundError(absl::StrCat("directory ", root, " holds no checkpoint; not usable: ",
                                          ListNames(passed_over)));
}

absl::Status RemoveCheckpoint(FileSystem& files, const std::string& root, std::int64_t step) {
  const std::string directory = absl::StrCat(root, "/", StepDirectory(step));
  absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (!names.ok()) return OkIfGone(names.status());
  if (std::ranges::find(*names, kManifestFile) != names->end()) {
    LOCKSTEP_RETURN_IF_ERROR(
        OkIfGone(files.Remove(absl::StrCat(directory, "/", kManifestFile))));
    // Else a crash could bring it back without the files.
    LOCKSTEP_RETURN_IF_ERROR(files.SyncDirectory(directory));
  }
  bool is_empty = true;
  for (const std::string& name : *names) {
    if (name == kManifestFile) continue;
    if (!IsOfCheckpoint(name)) {
      is_empty = false;
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(OkIfGone(files.Remove(absl::StrCat(directory, "/", name))));
  }
  if (!is_empty) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(OkIfGone(files.RemoveDirectory(directory)));
  return files.SyncDirectory(root);
}

absl::Status KeepNewest(FileSystem& files, const std::string& root, int keep) {
  if (keep < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoints to keep are ", keep, "; expected 1 or more"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::int64_t> steps, StepsIn(files, root));
  absl::Status first;
  int complete = 0;
  for (const std::int64_t step : steps) {
    const absl::Status status = ReadManifest(files, root, step).status();
    bool goes = absl::IsNotFound(status) && complete > 0;
    if (status.ok()) goes = ++complete > keep;
    if (IsDamage(status)) LogWarning("a checkpoint is kept as it is: ", status.message());
    if (goes) first.Update(RemoveCheckpoint(files, root, step));
    if (!status.ok() && !IsDamage(status) && !absl::IsNotFound(status)) first.Update(status);
  }
  return first;
}

}  // namespace lockstep
