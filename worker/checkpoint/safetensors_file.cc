#include "worker/checkpoint/safetensors_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

absl::StatusOr<std::string> ReadHead(const InputFile& file) {
  // A shorter file is refused by SafetensorsHeadBytes().
  std::string head(
      static_cast<std::size_t>(std::min<std::int64_t>(kSafetensorsPrefixBytes, file.bytes())), 0);
  LOCKSTEP_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(head))));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t bytes, SafetensorsHeadBytes(head, file.bytes()));
  head.resize(static_cast<std::size_t>(bytes));
  LOCKSTEP_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(head))));
  return head;
}

absl::StatusOr<SafetensorsHeader> ReadHeader(const InputFile& file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string head, ReadHead(file));
  return ParseSafetensors(head, file.bytes());
}

}  // namespace

absl::StatusOr<FileSum> WriteSafetensors(FileSystem& files, const std::string& path,
                                         absl::string_view tag, const SafetensorsMetadata& metadata,
                                         const std::vector<FileTensor>& tensors) {
  std::vector<TensorSpec> specs;
  for (const FileTensor& tensor : tensors) specs.push_back(tensor.spec);
  LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsLayout layout, LayOutSafetensors(metadata, specs));
  for (const FileTensor& tensor : tensors) {
    if (static_cast<std::int64_t>(tensor.bytes.size()) == tensor.spec.bytes()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", Quoted(tensor.spec.name), " is ", tensor.spec.ToString(), " with ",
        tensor.bytes.size(), " bytes; expected ", tensor.spec.bytes()));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                            AtomicFile::Create(files, path, tag));
  LOCKSTEP_RETURN_IF_ERROR(file->Append(layout.head));
  for (const std::size_t i : layout.order) {
    LOCKSTEP_RETURN_IF_ERROR(file->Append(tensors[i].bytes));
  }
  return file->Commit();
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const FileSystem& files, std::string path,
                                                      const FileSum* expected) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<InputFile> file, files.Open(path));
  if (expected != nullptr) LOCKSTEP_RETURN_IF_ERROR(CheckSum(*file, path, *expected));
  absl::StatusOr<SafetensorsHeader> header = ReadHeader(*file);
  if (absl::IsDataLoss(header.status())) {
    return absl::DataLossError(absl::StrCat("file ", path, " is no safetensors file: ",
                                            header.status().message()));
  }
  LOCKSTEP_RETURN_IF_ERROR(header.status());
  return SafetensorsFile(std::move(file), *std::move(header));
}

absl::Status SafetensorsFile::Read(const SafetensorsEntry& entry, std::int64_t from,
                                   std::span<std::byte> bytes) const {
  LOCKSTEP_CHECK(from >= 0 && from <= entry.tensor.bytes() &&
                 static_cast<std::int64_t>(bytes.size()) <= entry.tensor.bytes() - from);
  return file_->ReadAt(entry.begin + from, bytes);
}

}  // namespace lockstep
