#include "worker/transport/shm/stream_copy.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace lockstep::shm {

#if defined(__SSE2__)

void StreamCopy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  // Only whole lines go past the caches: a part of one would cost a read of it.
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
  const std::int64_t head = std::min(bytes, (kLine - misaligned) % kLine);
  if (head > 0) std::memcpy(to, from, head);
  std::int64_t done = head;
  for (; bytes - done >= kLine; done += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + done);
    auto* target = reinterpret_cast<__m128i*>(to + done);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  if (bytes > done) std::memcpy(to + done, from + done, bytes - done);
  // Such stores are ordered with later ones by a fence only.
  _mm_sfence();
}

#else

void StreamCopy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

#endif

}  // namespace lockstep::shm
