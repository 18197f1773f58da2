#include "worker/trainer/sampler.h"

#include <cstddef>
#include <numeric>
#include <utility>

#include "common/base/prng.h"

namespace lockstep {

Sampler::Sampler(std::int64_t images, std::int64_t batch, std::uint64_t seed)
    : batch_(batch), seed_(seed), order_(images) {}

std::int64_t Sampler::BatchesOf(std::int64_t images) const {
  const std::int64_t full = images / batch_;
  const std::int64_t rest = images % batch_;
  const bool joins_previous = rest == 1 && full > 0;
  return rest == 0 || joins_previous ? full : full + 1;
}

std::int64_t Sampler::steps_per_epoch(int world_size) const {
  return (BatchesOf(images()) + world_size - 1) / world_size;
}

void Sampler::Shuffle(std::int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  std::iota(order_.begin(), order_.end(), 0);
  Prng prng(Prng(seed_).Next() + static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[prng.Below(i)]);
}

std::span<const std::int64_t> Sampler::Batch(std::int64_t samples, int rank) {
  Shuffle(samples / images());
  const std::int64_t done = samples % images();
  const std::int64_t batches = BatchesOf(images() - done);
  if (rank >= batches) return {};
  const std::int64_t begin = done + rank * batch_;
  const std::int64_t end = rank + 1 == batches ? images() : begin + batch_;
  return std::span(order_).subspan(begin, end - begin);
}

}  // namespace lockstep
