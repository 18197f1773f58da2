#include "common/base/checksum.h"

#include <xxhash.h>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace lockstep {

struct Checksum::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->xxh); }

Checksum::~Checksum() = default;

Checksum& Checksum::Add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
  return *this;
}

std::string Checksum::Finish() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh));
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(canonical.digest),
                                                  sizeof(canonical.digest)));
}

}  // namespace lockstep
