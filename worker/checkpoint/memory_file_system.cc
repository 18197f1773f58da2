#include "worker/checkpoint/memory_file_system.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/checkpoint/atomic_file.h"

namespace lockstep {
namespace {

class MemoryInputFile final : public InputFile {
 public:
  explicit MemoryInputFile(std::string content) : content_(std::move(content)) {}
  std::int64_t bytes() const override { return static_cast<std::int64_t>(content_.size()); }
  absl::Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes() || static_cast<std::int64_t>(out.size()) > bytes() - offset) {
      return absl::DataLossError("the file ends before");
    }
    if (!out.empty()) std::memcpy(out.data(), content_.data() + offset, out.size());
    return absl::OkStatus();
  }

 private:
  const std::string content_;
};

absl::Status NoSuch(const std::string& path) { return absl::NotFoundError("no " + path); }

}  // namespace

class MemoryOutputFile final : public OutputFile {
 public:
  MemoryOutputFile(MemoryFileSystem& files, std::shared_ptr<MemoryFileSystem::Node> node)
      : files_(files), node_(std::move(node)) {}

  absl::Status Append(std::span<const std::byte> bytes) override {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const absl::Status status = files_.BeginOperation();
    if (!status.ok()) {
      node_->content.append(text.substr(0, text.size() / 2));
      return status;
    }
    const auto room = static_cast<std::size_t>(files_.capacity_ - files_.UsedBytes());
    node_->content.append(text.substr(0, room));
    if (room >= text.size()) return absl::OkStatus();
    return absl::ResourceExhaustedError("no space left on the device");
  }

  absl::Status Sync() override {
    LOCKSTEP_RETURN_IF_ERROR(files_.BeginOperation());
    node_->synced = node_->content;
    return absl::OkStatus();
  }

 private:
  MemoryFileSystem& files_;
  const std::shared_ptr<MemoryFileSystem::Node> node_;
};

absl::Status MemoryFileSystem::BeginOperation() {
  if (++operations_ <= stop_at_ - 1) return absl::OkStatus();
  return absl::InternalError("the file system has stopped");
}

absl::Status MemoryFileSystem::CheckParent(const std::string& path) const {
  const std::string parent = DirectoryOf(path);
  const auto at = names_.find(parent);
  if (parent == "/" || (at != names_.end() && at->second->is_directory)) return absl::OkStatus();
  return NoSuch(parent);
}

std::int64_t MemoryFileSystem::UsedBytes() const {
  std::int64_t bytes = 0;
  for (const auto& [path, node] : names_) bytes += static_cast<std::int64_t>(node->content.size());
  return bytes;
}

void MemoryFileSystem::Crash(Prng& prng) {
  Names after = synced_;
  for (const auto& [path, node] : names_) {
    const auto at = synced_.find(path);
    const bool same = at != synced_.end() && at->second == node;
    if (!same && prng.Below(2) == 0) after[path] = node;
  }
  for (const auto& [path, node] : synced_) {
    if (names_.find(path) == names_.end() && prng.Below(2) == 0) after.erase(path);
  }
  // No file without its directory.
  std::erase_if(after, [&](const auto& entry) {
    const std::string parent = DirectoryOf(entry.first);
    return parent != "/" && after.find(parent) == after.end();
  });
  for (const auto& [path, node] : after) {
    if (node->content == node->synced) continue;
    const std::size_t kept = prng.Below(node->content.size() + 1);
    switch (prng.Below(4)) {
      case 0:
        node->content = node->synced;
        break;
      case 1:
        node->content.resize(kept);
        break;
      case 2:  // its length was written, not all of its content
        std::fill(node->content.begin() + static_cast<std::ptrdiff_t>(kept), node->content.end(),
                  '\0');
        break;
      default:
        break;
    }
    node->synced = node->content;
  }
  names_ = after;
  synced_ = std::move(after);
  stop_at_ = kNever;
}

std::string& MemoryFileSystem::Content(const std::string& path) {
  LOCKSTEP_CHECK(names_.contains(path));
  return names_.at(path)->content;
}

std::vector<std::string> MemoryFileSystem::Paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, node] : names_) {
    if (!node->is_directory) paths.push_back(path);
  }
  return paths;
}

absl::StatusOr<std::unique_ptr<OutputFile>> MemoryFileSystem::Create(const std::string& path) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  LOCKSTEP_RETURN_IF_ERROR(CheckParent(path));
  std::shared_ptr<Node>& node = names_[path];
  if (node == nullptr) {
    node = std::make_shared<Node>();
  } else {
    node->content.clear();
  }
  return std::make_unique<MemoryOutputFile>(*this, node);
}

absl::StatusOr<std::unique_ptr<InputFile>> MemoryFileSystem::Open(const std::string& path) const {
  const auto at = names_.find(path);
  if (at == names_.end() || at->second->is_directory) return NoSuch(path);
  return std::make_unique<MemoryInputFile>(at->second->content);
}

absl::Status MemoryFileSystem::Rename(const std::string& from, const std::string& to) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  const auto at = names_.find(from);
  if (at == names_.end()) return NoSuch(from);
  names_[to] = at->second;
  names_.erase(from);
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::Remove(const std::string& path) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  return names_.erase(path) == 1 ? absl::OkStatus() : NoSuch(path);
}

absl::Status MemoryFileSystem::MakeDirectory(const std::string& path) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  LOCKSTEP_RETURN_IF_ERROR(CheckParent(path));
  if (names_.contains(path)) return absl::OkStatus();
  names_[path] = std::make_shared<Node>(Node{.is_directory = true});
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::RemoveDirectory(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(path));
  if (!names.empty()) return absl::InternalError(path + " is not empty");
  return Remove(path);
}

absl::StatusOr<std::vector<std::string>> MemoryFileSystem::List(const std::string& path) const {
  if (path != "/" && !names_.contains(path)) return NoSuch(path);
  std::vector<std::string> names;
  for (const auto& [name, node] : names_) {
    if (DirectoryOf(name) == path) names.push_back(name.substr(name.rfind('/') + 1));
  }
  return names;
}

absl::Status MemoryFileSystem::SyncDirectory(const std::string& path) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  std::erase_if(synced_, [&](const auto& entry) {
    return DirectoryOf(entry.first) == path && !names_.contains(entry.first);
  });
  for (const auto& [name, node] : names_) {
    if (DirectoryOf(name) == path) synced_[name] = node;
  }
  return absl::OkStatus();
}

}  // namespace lockstep
