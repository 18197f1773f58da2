#include "coordinator/store/tail_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

constexpr int kSlots = 2;
constexpr std::size_t kSlotBytes = 64;

std::uint64_t Check(const Tail& tail) {
  return Digester().Add("tail").Add(tail.id).Add(tail.checksum).Finish();
}

// One line of kSlotBytes.
std::string Encode(const Tail& tail) {
  std::string line = absl::StrFormat("%020d %016x %016x", tail.id,
                                     static_cast<std::uint64_t>(tail.checksum), Check(tail));
  line.resize(kSlotBytes - 1, ' ');
  return line + "\n";
}

std::optional<Tail> Decode(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
  Tail tail;
  std::uint64_t checksum = 0, check = 0;
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &tail.id) ||
      !absl::SimpleHexAtoi(words[1], &checksum) || !absl::SimpleHexAtoi(words[2], &check)) {
    return std::nullopt;
  }
  tail.checksum = static_cast<std::int64_t>(checksum);
  if (check != Check(tail)) return std::nullopt;
  return tail;
}

// A file's name is durable once its folder is.
bool SyncFolder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool is_synced = fsync(fd) == 0;
  close(fd);
  return is_synced;
}

}  // namespace

TailFile::TailFile(TailFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      next_slot_(other.next_slot_),
      tail_(other.tail_) {}

TailFile& TailFile::operator=(TailFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(next_slot_, other.next_slot_);
  std::swap(tail_, other.tail_);
  return *this;
}

TailFile::~TailFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status TailFile::Error(absl::string_view doing) const {
  const int error = errno;
  const std::string text = absl::StrCat(doing, " '", path_, "': ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(
        absl::StrCat(text, "; make room, then start the coordinator again"));
  }
  return absl::InternalError(text);
}

absl::StatusOr<TailFile> TailFile::Create(const std::string& path) {
  // Under another name until it is whole: a crash leaves no half of it.
  const std::string fresh = path + ".new";
  TailFile file(fresh, open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.fd_ < 0) return file.Error("making");
  for (int slot = 0; slot < kSlots; ++slot) LOCKSTEP_RETURN_IF_ERROR(file.Write(Tail()));
  if (rename(fresh.c_str(), path.c_str()) != 0 || !SyncFolder(path)) return file.Error("making");
  file.path_ = path;
  return file;
}

absl::StatusOr<TailFile> TailFile::Open(const std::string& path) {
  TailFile file(path, open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.fd_ < 0) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat("there is no '", path, "'"));
    return file.Error("opening");
  }
  std::string bytes(kSlots * kSlotBytes, '\0');
  const ssize_t read = pread(file.fd_, bytes.data(), bytes.size(), 0);
  if (read < 0) return file.Error("reading");
  bytes.resize(static_cast<std::size_t>(read));
  if (absl::StripAsciiWhitespace(bytes) == "accept") return file;
  for (int slot = 0; slot < kSlots; ++slot) {
    const std::size_t begin = std::min(bytes.size(), slot * kSlotBytes);
    const std::optional<Tail> tail = Decode(absl::string_view(bytes).substr(begin, kSlotBytes));
    if (!tail || (file.tail_ && tail->id < file.tail_->id)) continue;
    file.tail_ = tail;
    file.next_slot_ = (slot + 1) % kSlots;
  }
  if (!file.tail_) {
    return absl::DataLossError(absl::StrCat("'", path, "' is damaged: no slot of it is whole"));
  }
  return file;
}

absl::Status TailFile::Write(const Tail& tail) {
  const std::string line = Encode(tail);
  const auto at = static_cast<off_t>(next_slot_ * kSlotBytes);
  const ssize_t written = pwrite(fd_, line.data(), line.size(), at);
  if (written >= 0 && written < static_cast<ssize_t>(line.size())) errno = ENOSPC;
  if (written != static_cast<ssize_t>(line.size())) return Error("writing");
  if (fdatasync(fd_) != 0) return Error("writing");
  next_slot_ = (next_slot_ + 1) % kSlots;
  tail_ = tail;
  return absl::OkStatus();
}

}  // namespace lockstep
