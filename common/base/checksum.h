// A 128-bit checksum (XXH3) of a stream of bytes, as `xxh128sum FILE` prints it.
//
// It finds accidental changes; it is no defence against an attacker. For values with
// fields there is common/base/digest.h.
#ifndef LOCKSTEP_COMMON_BASE_CHECKSUM_H_
#define LOCKSTEP_COMMON_BASE_CHECKSUM_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

// Thread-compatible.
class Checksum {
 public:
  static constexpr int kDigits = 32;

  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  // However the bytes are cut into pieces, the checksum is the same.
  Checksum& Add(std::span<const std::byte> bytes);

  // Of what was added so far: kDigits lower-case hexadecimal digits.
  std::string Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_CHECKSUM_H_
