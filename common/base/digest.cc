#include "common/base/digest.h"

#include <xxhash.h>

namespace lockstep {

struct Digester::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Digester::Digester() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(state_->xxh);
}

Digester::~Digester() = default;

Digester& Digester::Add(absl::string_view text) {
  return Add(std::as_bytes(std::span(text.data(), text.size())));
}

Digester& Digester::Add(std::int64_t number) {
  XXH3_64bits_update(state_->xxh, &number, sizeof(number));
  return *this;
}

Digester& Digester::Add(std::span<const std::byte> bytes) {
  Add(static_cast<std::int64_t>(bytes.size()));
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
  return *this;
}

std::uint64_t Digester::Finish() const {
  return XXH3_64bits_digest(state_->xxh);
}

}  // namespace lockstep
