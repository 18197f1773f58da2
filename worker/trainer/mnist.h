// MNIST's idx files: greyscale images of 28 x 28 and their digits.
//
//   images: u32 0x00000803, u32 count, u32 rows, u32 columns, then bytes
//   labels: u32 0x00000801, u32 count, then bytes            (big-endian)
//
// The parsers are pure. Thread-compatible.
#ifndef LOCKSTEP_WORKER_TRAINER_MNIST_H_
#define LOCKSTEP_WORKER_TRAINER_MNIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

inline constexpr std::int64_t kImageSide = 28;
inline constexpr std::int64_t kImagePixels = kImageSide * kImageSide;
inline constexpr int kDigits = 10;
// Bounds on what a file may hold.
inline constexpr std::int64_t kMaxImages = 1'000'000;

struct LabeledImages {
  std::vector<std::uint8_t> pixels;  // kImagePixels for each image, row by row
  std::vector<std::uint8_t> labels;  // 0 to 9

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

// `file` is named in messages. Errors: DataLoss says what is wrong with which
//   file: too short for its header, another magic number, no images or too many,
//   another image size, fewer or more bytes than the count says, a label above 9.
absl::StatusOr<std::vector<std::uint8_t>> ParseIdxImages(absl::string_view file,
                                                         absl::string_view bytes);
absl::StatusOr<std::vector<std::uint8_t>> ParseIdxLabels(absl::string_view file,
                                                         absl::string_view bytes);

enum class MnistPart { kTrain, kTest };

// Reads "train-images-idx3-ubyte" and "train-labels-idx1-ubyte", or those that
// begin with "t10k", in `folder`.
// Errors: NotFound: a file cannot be opened. DataLoss: as the parsers say, or
//   there are not as many labels as images.
absl::StatusOr<LabeledImages> LoadMnist(const std::string& folder, MnistPart part);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_MNIST_H_
