// Numbers as file formats hold them, the lowest byte first. Pure.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_LITTLE_ENDIAN_H_
#define LOCKSTEP_WORKER_CHECKPOINT_LITTLE_ENDIAN_H_

#include <cstdint>
#include <string>

namespace lockstep {

// Appends the lowest `bytes` bytes of `value`.
inline void AppendLittleEndian(std::uint64_t value, int bytes, std::string* text) {
  for (int i = 0; i < bytes; ++i) text->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_LITTLE_ENDIAN_H_
