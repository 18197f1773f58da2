#include "worker/checkpoint/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

absl::Status Failed(absl::string_view doing, const std::string& path, int error) {
  const absl::Status status = absl::ErrnoToStatus(error, absl::StrCat(doing, " ", path));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(
          absl::StrCat(status.message(), "; make room there and try again"));
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(status.message());
    default:
      break;
  }
  const bool says_enough = absl::IsNotFound(status) || absl::IsAlreadyExists(status) ||
                           absl::IsPermissionDenied(status);
  return says_enough ? status : absl::InternalError(status.message());
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::StatusOr<Descriptor> OpenDescriptor(absl::string_view doing, const std::string& path,
                                          int flags) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return Failed(doing, path, errno);
  return Descriptor(fd);
}

absl::Status SyncDescriptor(const Descriptor& descriptor, const std::string& path) {
  if (fsync(descriptor.get()) == 0) return absl::OkStatus();
  return Failed("writing to the device", path, errno);
}

class HostOutputFile final : public OutputFile {
 public:
  HostOutputFile(std::string path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  absl::Status Append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = write(descriptor_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Failed("writing", path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override { return SyncDescriptor(descriptor_, path_); }

 private:
  const std::string path_;
  const Descriptor descriptor_;
};

class HostInputFile final : public InputFile {
 public:
  HostInputFile(std::string path, Descriptor descriptor, std::int64_t bytes)
      : path_(std::move(path)), descriptor_(std::move(descriptor)), bytes_(bytes) {}

  std::int64_t bytes() const override { return bytes_; }

  absl::Status ReadAt(std::int64_t offset, std::span<std::byte> bytes) const override {
    while (!bytes.empty()) {
      const ssize_t count = pread(descriptor_.get(), bytes.data(), bytes.size(), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed("reading", path_, errno);
      if (count == 0) {
        return absl::DataLossError(absl::StrCat("file ", path_, " ends at byte ", offset, ", but ",
                                                bytes.size(), " more were expected"));
      }
      offset += count;
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const Descriptor descriptor_;
  const std::int64_t bytes_;
};

class Host final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override {
    LOCKSTEP_ASSIGN_OR_RETURN(Descriptor descriptor,
                              OpenDescriptor("creating", path, O_WRONLY | O_CREAT | O_TRUNC));
    return std::make_unique<HostOutputFile>(path, std::move(descriptor));
  }

  absl::StatusOr<std::unique_ptr<InputFile>> Open(const std::string& path) const override {
    // What is no file, a pipe for example, must not make the process wait.
    LOCKSTEP_ASSIGN_OR_RETURN(Descriptor descriptor,
                              OpenDescriptor("opening", path, O_RDONLY | O_NONBLOCK));
    struct stat status;
    if (fstat(descriptor.get(), &status) != 0) return Failed("opening", path, errno);
    if (!S_ISREG(status.st_mode)) {
      return absl::InternalError(absl::StrCat("opening ", path, ": it is not a regular file"));
    }
    return std::make_unique<HostInputFile>(path, std::move(descriptor), status.st_size);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    return Failed(absl::StrCat("renaming ", from, " to"), to, errno);
  }

  absl::Status Remove(const std::string& path) override {
    if (unlink(path.c_str()) == 0) return absl::OkStatus();
    return Failed("removing", path, errno);
  }

  absl::Status MakeDirectory(const std::string& path) override {
    if (mkdir(path.c_str(), 0777) == 0) return absl::OkStatus();
    const int error = errno;
    struct stat status;
    if (error == EEXIST && stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
      return absl::OkStatus();
    }
    return Failed("making the directory", path, error);
  }

  absl::Status RemoveDirectory(const std::string& path) override {
    if (rmdir(path.c_str()) == 0) return absl::OkStatus();
    return Failed("removing the directory", path, errno);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) const override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator at(path, error);
    for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
      names.push_back(at->path().filename().string());
    }
    if (error) return Failed("listing the directory", path, error.value());
    std::ranges::sort(names);
    return names;
  }

  absl::Status SyncDirectory(const std::string& path) override {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Descriptor descriptor,
        OpenDescriptor("opening the directory", path, O_RDONLY | O_DIRECTORY));
    return SyncDescriptor(descriptor, path);
  }
};

}  // namespace

FileSystem& HostFileSystem() {
  static Host host;
  return host;
}

}  // namespace lockstep
