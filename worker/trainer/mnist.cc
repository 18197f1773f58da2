#include "worker/trainer/mnist.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kImagesMagic = 0x00000803;
constexpr std::uint32_t kLabelsMagic = 0x00000801;

absl::Status Corrupt(absl::string_view file, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("'", file, "' ", what));
}

std::uint32_t BigEndian(absl::string_view bytes, std::size_t offset) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<std::uint8_t>(bytes[offset + i]);
  }
  return value;
}

// Checks magic and count; returns the count.
absl::StatusOr<std::int64_t> ParseHeader(absl::string_view file, absl::string_view bytes,
                                         std::size_t header_bytes, std::uint32_t magic) {
  if (bytes.size() < header_bytes) {
    return Corrupt(file, absl::StrCat("has ", bytes.size(), " bytes; its header alone has ",
                                      header_bytes));
  }
  if (BigEndian(bytes, 0) != magic) {
    return Corrupt(file, absl::StrFormat("begins with 0x%08x; expected 0x%08x (is it still "
                                         "compressed, or another file?)",
                                         BigEndian(bytes, 0), magic));
  }
  const std::int64_t count = BigEndian(bytes, 4);
  if (count == 0 || count > kMaxImages) {
    return Corrupt(file, absl::StrCat("announces ", count, " entries; allowed are 1 to ",
                                      kMaxImages));
  }
  return count;
}

absl::StatusOr<std::vector<std::uint8_t>> ParseBody(absl::string_view file, absl::string_view body,
                                                    std::int64_t expected) {
  if (static_cast<std::int64_t>(body.size()) != expected) {
    return Corrupt(file, absl::StrCat("has ", body.size(), " bytes behind its header; its header "
                                      "announces ", expected));
  }
  return std::vector<std::uint8_t>(body.begin(), body.end());
}

absl::StatusOr<std::string> ReadIdx(const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadFile(path);
  if (bytes.ok()) return bytes;
  return absl::Status(bytes.status().code(),
                      absl::StrCat(bytes.status().message(),
                                   "; --data must name the folder of the four MNIST idx files"));
}

}  // namespace

absl::StatusOr<std::vector<std::uint8_t>> ParseIdxImages(absl::string_view file,
                                                         absl::string_view bytes) {
  constexpr std::size_t kHeaderBytes = 16;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t count,
                            ParseHeader(file, bytes, kHeaderBytes, kImagesMagic));
  const std::uint32_t rows = BigEndian(bytes, 8);
  const std::uint32_t columns = BigEndian(bytes, 12);
  if (rows != kImageSide || columns != kImageSide) {
    return Corrupt(file, absl::StrCat("has images of ", rows, " x ", columns, "; expected ",
                                      kImageSide, " x ", kImageSide));
  }
  return ParseBody(file, bytes.substr(kHeaderBytes), count * kImagePixels);
}

absl::StatusOr<std::vector<std::uint8_t>> ParseIdxLabels(absl::string_view file,
                                                         absl::string_view bytes) {
  constexpr std::size_t kHeaderBytes = 8;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t count,
                            ParseHeader(file, bytes, kHeaderBytes, kLabelsMagic));
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<std::uint8_t> labels,
                            ParseBody(file, bytes.substr(kHeaderBytes), count));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= kDigits) {
      return Corrupt(file, absl::StrCat("labels entry ", i, " as ", static_cast<int>(labels[i]),
                                        "; allowed are 0 to 9"));
    }
  }
  return labels;
}

absl::StatusOr<LabeledImages> LoadMnist(const std::string& folder, MnistPart part) {
  const std::string prefix =
      absl::StrCat(folder, "/", part == MnistPart::kTrain ? "train" : "t10k");
  const std::string images_file = prefix + "-images-idx3-ubyte";
  const std::string labels_file = prefix + "-labels-idx1-ubyte";
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string images_bytes, ReadIdx(images_file));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string labels_bytes, ReadIdx(labels_file));
  LabeledImages images;
  LOCKSTEP_ASSIGN_OR_RETURN(images.pixels, ParseIdxImages(images_file, images_bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(images.labels, ParseIdxLabels(labels_file, labels_bytes));
  if (static_cast<std::int64_t>(images.pixels.size()) != images.size() * kImagePixels) {
    return Corrupt(labels_file, absl::StrCat("has ", images.size(), " labels, '", images_file,
                                             "' has ", images.pixels.size() / kImagePixels,
                                             " images; they must belong together"));
  }
  return images;
}

}  // namespace lockstep
