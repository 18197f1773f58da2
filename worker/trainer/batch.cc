#include "worker/trainer/batch.h"

#include "ATen/ops/empty.h"

namespace lockstep {

Batch MakeBatch(const LabeledImages& data, std::span<const std::int64_t> numbers,
                c10::Device device) {
  // Mean and standard deviation of MNIST's pixels, of 0 to 1.
  constexpr float kMean = 0.1307f;
  constexpr float kDeviation = 0.3081f;
  const auto count = static_cast<std::int64_t>(numbers.size());
  Batch batch = {.images = at::empty({count, 1, kImageSide, kImageSide}),
                 .labels = at::empty({count}, at::kLong)};
  float* pixels = batch.images.mutable_data_ptr<float>();
  std::int64_t* labels = batch.labels.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t number : numbers) {
    const std::uint8_t* from = data.pixels.data() + number * kImagePixels;
    for (std::int64_t k = 0; k < kImagePixels; ++k) {
      *pixels++ = (static_cast<float>(from[k]) / 255.0f - kMean) / kDeviation;
    }
    *labels++ = data.labels[number];
  }
  return {.images = batch.images.to(device), .labels = batch.labels.to(device)};
}

}  // namespace lockstep
