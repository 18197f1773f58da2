// Manifests for tests: valid ones, drawn from a seed.
#ifndef LOCKSTEP_COMMON_MANIFEST_RANDOM_MANIFEST_H_
#define LOCKSTEP_COMMON_MANIFEST_RANDOM_MANIFEST_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/manifest/manifest.h"

namespace lockstep {

inline TensorSpec RandomTensor(Prng& prng, std::string name) {
  TensorSpec tensor{.name = std::move(name),
                    .dtype = static_cast<DType>(prng.Between(1, 21))};
  const std::int64_t dimensions = prng.Between(0, 4);
  for (int i = 0; i < dimensions; ++i) tensor.shape.push_back(prng.Between(0, 40));
  return tensor;
}

// Up to 12 parameters, some frozen, of which the trainable ones are float32; up
// to 12 buffers of any dtype.
inline Manifest RandomManifest(Prng& prng) {
  Manifest manifest;
  const std::int64_t parameters = prng.Between(0, 12);
  for (int i = 0; i < parameters; ++i) {
    ParameterSpec parameter{.tensor = RandomTensor(prng, absl::StrCat("layer", i, ".weight")),
                            .trainable = prng.Below(4) != 0};
    if (parameter.trainable) parameter.tensor.dtype = DType::kFloat32;
    manifest.parameters.push_back(parameter);
  }
  const std::int64_t buffers = prng.Between(0, 12);
  for (int i = 0; i < buffers; ++i) {
    manifest.buffers.push_back(RandomTensor(prng, absl::StrCat("layer", i, ".größe")));
  }
  if (prng.Below(2) == 0) manifest.optimizer = absl::StrCat("SGD(lr=0.", prng.Below(100), ")");
  return manifest;
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MANIFEST_RANDOM_MANIFEST_H_
