#include "worker/checkpoint/atomic_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

// What is in the caches for the checksum is still there for the file system.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

absl::Status CheckBytes(const InputFile& file, const std::string& path, std::int64_t expected) {
  if (file.bytes() == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("file ", path, " has ", file.bytes(),
                                          " bytes; expected ", expected,
                                          ". It is not what was written; use another checkpoint"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(FileSystem& files, std::string path,
                                                               absl::string_view tag) {
  std::string temporary = absl::StrCat(path, ".", tag, ".tmp");
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, files.Create(temporary));
  return std::unique_ptr<AtomicFile>(
      new AtomicFile(files, std::move(path), std::move(temporary), std::move(file)));
}

AtomicFile::AtomicFile(FileSystem& files, std::string path, std::string temporary,
                       std::unique_ptr<OutputFile> file)
    : files_(files),
      path_(std::move(path)),
      temporary_(std::move(temporary)),
      file_(std::move(file)) {}

AtomicFile::~AtomicFile() {
  if (!has_name_) files_.Remove(temporary_).IgnoreError();
}

absl::Status AtomicFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    checksum_.Add(piece);
    LOCKSTEP_RETURN_IF_ERROR(file_->Append(piece));
    bytes_ += static_cast<std::int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Append(absl::string_view text) {
  return Append(std::as_bytes(std::span(text.data(), text.size())));
}

absl::StatusOr<FileSum> AtomicFile::Commit() {
  LOCKSTEP_RETURN_IF_ERROR(file_->Sync());
  LOCKSTEP_RETURN_IF_ERROR(files_.Rename(temporary_, path_));
  has_name_ = true;
  LOCKSTEP_RETURN_IF_ERROR(files_.SyncDirectory(DirectoryOf(path_)));
  return FileSum{.bytes = bytes_, .checksum = checksum_.Finish()};
}

std::string DirectoryOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::StatusOr<std::string> ReadFile(const FileSystem& files, const std::string& path,
                                     std::int64_t most) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> file, files.Open(path));
  if (file->bytes() > most) {
    return absl::DataLossError(absl::StrCat("file ", path, " has ", file->bytes(),
                                            " bytes; expected at most ", most));
  }
  std::string text(static_cast<std::size_t>(file->bytes()), '\0');
  LOCKSTEP_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

absl::Status CheckSum(const InputFile& file, const std::string& path, const FileSum& expected) {
  LOCKSTEP_RETURN_IF_ERROR(CheckBytes(file, path, expected.bytes));
  Checksum checksum;
  std::vector<std::byte> piece(
      static_cast<std::size_t>(std::min<std::int64_t>(expected.bytes, kPieceBytes)));
  for (std::int64_t at = 0; at < expected.bytes; at += static_cast<std::int64_t>(piece.size())) {
    const auto part = std::span(piece).first(
        static_cast<std::size_t>(std::min<std::int64_t>(piece.size(), expected.bytes - at)));
    LOCKSTEP_RETURN_IF_ERROR(file.ReadAt(at, part));
    checksum.Add(part);
  }
  if (checksum.Finish() == expected.checksum) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("file ", path, " has the checksum ", checksum.Finish(),
                                          "; expected ", expected.checksum,
                                          ". It is not what was written; use another checkpoint"));
}

}  // namespace lockstep
