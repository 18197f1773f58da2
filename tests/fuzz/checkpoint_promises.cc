// The files of a checkpoint, by whoever has written them. Parts follow each other, with a line `--`
// in between: the manifest, then a file for each shard, then the replicated file. The first byte
// says how they are meant:
//
//   r   each part is a file, byte for byte
//   s   signed, as by one who knows the format: the manifest's text gets its checksum; a file is
//       the JSON of its header with bytes made up behind it, or what the manifest asks for if it
//       is absent and small; and the manifest has the files' sums
//
// Any bytes are read, or refused with the errors that the readers state. A manifest that is read
// is valid and is the same when it is written and read again; the tensors of a safetensors file
// cover it without gap or overlap; whatever a checkpoint claims, nobody allocates for it more than
// its files have.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/checksum.h"
#include "common/base/status_macros.h"
#include "tests/fuzz/promises.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/checkpoint_layout.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/export.h"
#include "worker/checkpoint/memory_file_system.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/safetensors_file.h"

namespace lockstep {
namespace {

constexpr char kRoot[] = "/job";
constexpr std::size_t kMaxParts = 12;
constexpr std::int64_t kMaxMadeUp = 1 << 16;  // bytes of a file's tensors
constexpr std::size_t kMaxElements = 1 << 10;  // that are asked of a reader at once

std::string SumOf(absl::string_view text) {
  return Checksum().Add(std::as_bytes(std::span(text.data(), text.size()))).Finish();
}

std::string WithChecksum(absl::string_view manifest) {
  return absl::StrCat(manifest, ",\n\"checksum\":\"", SumOf(manifest), "\"}\n");
}

// The bytes of tensors that a header claims, as far as one can see.
std::int64_t ClaimedBytes(absl::string_view header) {
  std::int64_t claimed = 0;
  constexpr absl::string_view kOffsets = "\"data_offsets\":[";
  for (std::size_t at = header.find(kOffsets); at != absl::string_view::npos;
       at = header.find(kOffsets, at + 1)) {
    const absl::string_view offsets = header.substr(at + kOffsets.size());
    const std::vector<absl::string_view> numbers =
        absl::StrSplit(offsets.substr(0, offsets.find(']')), ',');
    std::int64_t end = 0;
    if (numbers.size() == 2 && absl::SimpleAtoi(numbers[1], &end)) claimed = std::max(claimed, end);
  }
  return std::min(claimed, kMaxMadeUp);
}

std::string WithData(absl::string_view header) {
  std::string file;
  for (std::int64_t i = 0; i < kSafetensorsPrefixBytes; ++i) {
    file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  absl::StrAppend(&file, header);
  for (std::int64_t i = ClaimedBytes(header); i > 0; --i) file += static_cast<char>(i);
  return file;
}

// The file of that index as the manifest asks for it; empty: it would be too long.
std::string FileOf(const CheckpointManifest& manifest, std::size_t index) {
  const bool is_shard = index < manifest.plan.shards.size();
  const int rank = static_cast<int>(index);
  const std::vector<TensorSpec> tensors =
      is_shard ? ShardTensors(manifest.plan, manifest.slots, rank)
               : ReplicatedTensors(manifest.model);
  const absl::StatusOr<SafetensorsLayout> layout = LayOutSafetensors(
      is_shard ? ShardMetadata(manifest.id, manifest.plan, rank) : ReplicatedMetadata(manifest.id),
      tensors);
  if (!layout.ok()) return "";
  std::int64_t bytes = 0;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.bytes() > kMaxMadeUp - bytes) return "";
    bytes += tensor.bytes();
  }
  return layout->head + std::string(static_cast<std::size_t>(bytes), '\0');
}

absl::Status CheckManifest(absl::string_view text, absl::StatusOr<CheckpointManifest>& manifest) {
  manifest = ManifestFromText(text);
  LOCKSTEP_RETURN_IF_ERROR(
      IsOkOr({absl::StatusCode::kDataLoss, absl::StatusCode::kFailedPrecondition},
             manifest.status(), "ManifestFromText"));
  if (!manifest.ok()) return absl::OkStatus();
  const absl::Status valid = Validate(*manifest);
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(valid.ok(), "a manifest that is read is valid", valid.ToString()));
  const absl::StatusOr<std::string> written = ManifestToText(*manifest);
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(written.ok(), "a manifest that is read can be written", written.status().ToString()));
  const absl::StatusOr<CheckpointManifest> again = ManifestFromText(*written);
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(again.ok(), "what is written can be read", again.status().ToString()));
  const absl::StatusOr<std::string> rewritten = ManifestToText(*again);
  return Holds(rewritten.ok() && *rewritten == *written && again->model == manifest->model &&
                   again->plan == manifest->plan && again->files == manifest->files,
               "a manifest is the same when it is read again", *written);
}

absl::Status CheckSafetensors(const MemoryFileSystem& files, const std::string& path) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(files, path, nullptr);
  LOCKSTEP_RETURN_IF_ERROR(
      IsOkOr({absl::StatusCode::kDataLoss}, file.status(), "SafetensorsFile::Open"));
  if (!file.ok()) return absl::OkStatus();
  const std::vector<SafetensorsEntry>& entries = file->header().entries;
  std::int64_t end = entries.empty() ? file->bytes() : entries.front().begin;
  std::vector<TensorSpec> tensors;
  for (const SafetensorsEntry& entry : entries) {
    LOCKSTEP_RETURN_IF_ERROR(
        Holds(entry.begin == end, "tensors leave no gap and do not overlap", entry.tensor.name));
    std::vector<std::byte> bytes(static_cast<std::size_t>(entry.tensor.bytes()));
    const absl::Status read = file->Read(entry, 0, bytes);
    LOCKSTEP_RETURN_IF_ERROR(Holds(read.ok(), "a tensor can be read", read.ToString()));
    end += entry.tensor.bytes();
    tensors.push_back(entry.tensor);
  }
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(end == file->bytes(), "tensors end where the file ends", absl::StrCat(end)));
  const absl::StatusOr<SafetensorsLayout> layout =
      LayOutSafetensors(file->header().metadata, tensors);
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(layout.ok(), "a header that is read can be written", layout.status().ToString()));
  std::int64_t bytes = static_cast<std::int64_t>(layout->head.size());
  for (const TensorSpec& tensor : tensors) bytes += tensor.bytes();
  const absl::StatusOr<SafetensorsHeader> again = ParseSafetensors(layout->head, bytes);
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(again.ok(), "a header that is written can be read", again.status().ToString()));
  bool is_same = again->entries.size() == tensors.size() &&
                 again->metadata == file->header().metadata;
  for (const TensorSpec& tensor : tensors) {
    const SafetensorsEntry* const entry = again->Find(tensor.name);
    is_same = is_same && entry != nullptr && entry->tensor == tensor;
  }
  return Holds(is_same, "a header is the same when it is read again", layout->head);
}

absl::Status IsOkOrOfReader(const absl::Status& status, absl::string_view of) {
  return IsOkOr({absl::StatusCode::kDataLoss, absl::StatusCode::kNotFound,
                 absl::StatusCode::kOutOfRange, absl::StatusCode::kFailedPrecondition},
                status, of);
}

// The begin and the end of each range, and a step beyond.
absl::Status CheckReads(CheckpointReader& reader) {
  const CheckpointManifest& manifest = reader.manifest();
  std::vector<float> floats(kMaxElements);
  std::vector<std::byte> bytes(kMaxElements * sizeof(double));
  const auto each_range = [](std::int64_t begin, std::int64_t end, auto read) -> absl::Status {
    const auto size = std::min<std::int64_t>(end - begin, kMaxElements);
    LOCKSTEP_RETURN_IF_ERROR(IsOkOrOfReader(read(begin, size), "a read of a begin"));
    LOCKSTEP_RETURN_IF_ERROR(IsOkOrOfReader(read(end - size, size), "a read of an end"));
    const absl::Status beyond = read(end, 1);
    return Holds(!beyond.ok(), "nothing is read beyond the end", absl::StrCat(end));
  };
  for (const CheckpointSlot& slot : manifest.slots) {
    LOCKSTEP_RETURN_IF_ERROR(each_range(
        slot.begin, manifest.plan.flat_elements, [&](std::int64_t begin, std::int64_t size) {
          return reader.ReadSlot(slot.name, begin, std::span(floats).first(size));
        }));
  }
  for (std::size_t i = 0; i < manifest.plan.blocks.size(); ++i) {
    const Block& block = manifest.plan.blocks[i];
    LOCKSTEP_RETURN_IF_ERROR(
        each_range(block.begin, block.end, [&](std::int64_t begin, std::int64_t size) {
          return reader.ReadParameters(
              i, begin, std::span(bytes).first(size * ElementBytes(block.dtype)));
        }));
  }
  for (const TensorSpec& tensor : ReplicatedTensors(manifest.model)) {
    if (tensor.bytes() > static_cast<std::int64_t>(bytes.size())) continue;
    LOCKSTEP_RETURN_IF_ERROR(IsOkOrOfReader(
        reader.ReadReplicated(tensor.name, std::span(bytes).first(tensor.bytes())),
        "ReadReplicated"));
  }
  return absl::OkStatus();
}

// Completes the files, and gives the manifest their sums.
absl::Status Sign(CheckpointManifest manifest, std::vector<std::string>& parts) {
  if (manifest.files.size() <= kMaxParts) {
    for (std::size_t i = parts.size() - 1; i < manifest.files.size(); ++i) {
      parts.push_back(FileOf(manifest, i));
    }
  }
  for (std::size_t i = 1; i < parts.size() && i <= manifest.files.size(); ++i) {
    manifest.files[i - 1].sum = {static_cast<std::int64_t>(parts[i].size()), SumOf(parts[i])};
  }
  const absl::StatusOr<std::string> text = ManifestToText(manifest);
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(text.ok(), "other sums change nothing else", text.status().ToString()));
  parts.front() = *text;
  return absl::OkStatus();
}

// The file of that index among the manifest's, whether it knows one or not.
std::string NameOf(std::size_t index, std::size_t count) {
  return index + 1 == count ? kReplicatedFile
                            : ShardFile(static_cast<int>(index), static_cast<int>(count) - 1);
}

void Put(MemoryFileSystem& files, const std::string& path, absl::string_view content) {
  files.Create(path).IgnoreError();
  files.Content(path) = std::string(content);
}

}  // namespace

absl::StatusOr<Reached> CheckPromises(absl::string_view bytes) {
  if (bytes.empty()) return Reached::kUnread;
  const bool is_signed = bytes.front() == 's';
  std::vector<std::string> parts =
      absl::StrSplit(bytes.substr(1), absl::MaxSplits("\n--\n", kMaxParts));
  if (is_signed) {
    parts.front() = WithChecksum(parts.front());
    for (std::size_t i = 1; i < parts.size(); ++i) parts[i] = WithData(parts[i]);
  }
  absl::StatusOr<CheckpointManifest> manifest;
  LOCKSTEP_RETURN_IF_ERROR(CheckManifest(parts.front(), manifest));
  if (is_signed && manifest.ok()) LOCKSTEP_RETURN_IF_ERROR(Sign(*manifest, parts));

  MemoryFileSystem files;
  const std::int64_t step = manifest.ok() ? manifest->id.step : 0;
  const std::string directory = absl::StrCat(kRoot, "/", StepDirectory(step));
  LOCKSTEP_RETURN_IF_ERROR(files.MakeDirectory(kRoot));
  LOCKSTEP_RETURN_IF_ERROR(files.MakeDirectory(directory));
  Put(files, absl::StrCat(directory, "/", kManifestFile), parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string path = absl::StrCat(directory, "/", NameOf(i - 1, parts.size() - 1));
    Put(files, path, parts[i]);
    LOCKSTEP_RETURN_IF_ERROR(CheckSafetensors(files, path));
  }
  const absl::StatusOr<std::unique_ptr<CheckpointReader>> reader =
      CheckpointReader::Open(files, kRoot, step);
  LOCKSTEP_RETURN_IF_ERROR(IsOkOrOfReader(reader.status(), "CheckpointReader::Open"));
  LOCKSTEP_RETURN_IF_ERROR(Holds(reader.ok() == manifest.ok(),
                                 "a checkpoint can be opened if its manifest is read",
                                 reader.status().ToString()));
  if (!reader.ok()) return Reached::kRefused;
  LOCKSTEP_RETURN_IF_ERROR(CheckReads(**reader));
  const absl::Status exported = ExportToTorch(**reader, files, "/export.pt");
  LOCKSTEP_RETURN_IF_ERROR(IsOkOrOfReader(exported, "ExportToTorch"));
  return exported.ok() ? Reached::kChecked : Reached::kRefused;
}

}  // namespace lockstep
