#include "tests/bench/random_digits.h"

#include <array>
#include <cstddef>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "worker/trainer/mnist.h"

namespace lockstep {
namespace {

constexpr int kNoise = 64;  // of 256 grey levels

void AppendBigEndian(std::uint32_t value, std::string& bytes) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
}

absl::Status Write(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  if (file) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path));
}

}  // namespace

absl::Status WriteRandomDigits(const std::string& folder, std::int64_t images, std::uint64_t seed) {
  Prng prng(seed);
  std::array<std::array<std::uint8_t, kImagePixels>, kDigits> patterns;
  for (auto& pattern : patterns) {
    for (std::uint8_t& pixel : pattern) {
      pixel = static_cast<std::uint8_t>(prng.Below(256 - kNoise));
    }
  }
  const auto count = static_cast<std::uint32_t>(images);
  std::string pixels;
  AppendBigEndian(0x00000803, pixels);
  for (const std::uint32_t size : {count, static_cast<std::uint32_t>(kImageSide),
                                   static_cast<std::uint32_t>(kImageSide)}) {
    AppendBigEndian(size, pixels);
  }
  std::string labels;
  AppendBigEndian(0x00000801, labels);
  AppendBigEndian(count, labels);
  for (std::int64_t i = 0; i < images; ++i) {
    const std::size_t digit = prng.Below(kDigits);
    labels.push_back(static_cast<char>(digit));
    for (const std::uint8_t pixel : patterns[digit]) {
      pixels.push_back(static_cast<char>(pixel + prng.Below(kNoise)));
    }
  }
  const absl::Status status = Write(folder + "/train-images-idx3-ubyte", pixels);
  return status.ok() ? Write(folder + "/train-labels-idx1-ubyte", labels) : status;
}

}  // namespace lockstep
