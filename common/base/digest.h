// A 64-bit digest (XXH3) of structured values, the same on every machine.
//
// It tells accidental differences apart; it is no defence against an attacker.
// Each field is length-prefixed, so ("ab", "c") and ("a", "bc") differ.
#ifndef LOCKSTEP_COMMON_BASE_DIGEST_H_
#define LOCKSTEP_COMMON_BASE_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/strings/string_view.h"

namespace lockstep {

// Thread-compatible.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(const Digester&) = delete;
  Digester& operator=(const Digester&) = delete;

  Digester& Add(absl::string_view text);
  Digester& Add(std::int64_t number);
  Digester& Add(std::span<const std::byte> bytes);

  std::uint64_t Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_DIGEST_H_
