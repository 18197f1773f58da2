// Loops over floats that the compiler turns into vector instructions and that run
// at the speed of memory.
//
// A loop goes strip by strip, and asks for memory ahead of where it is: the processor's
// own prefetching stops at the border of a page. None of it changes a result: nothing
// is reordered or fused. Pure.
#ifndef LOCKSTEP_WORKER_NUMERIC_VECTOR_LOOP_H_
#define LOCKSTEP_WORKER_NUMERIC_VECTOR_LOOP_H_

#include <cstddef>
#include <type_traits>

// A function that is compiled for several sets of vector instructions, of which the
// widest that the processor has is taken when the program starts. What it calls is
// compiled along with it if it is inlined.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_VECTORIZE __attribute__((target_clones("avx2", "default"), flatten))
#else
#define LOCKSTEP_VECTORIZE
#endif

namespace lockstep {

// More than what the compiler would unroll whole, and then not see as vectors: compare
// the instructions when you change it.
inline constexpr std::size_t kStripElements = 32;

// How far ahead memory is asked for, measured: nearer and farther are slower.
inline constexpr std::size_t kPrefetchBytes = 2048;

inline constexpr std::size_t kCacheLineBytes = 64;

// Asks for the strip that lies kPrefetchBytes behind `at`.
template <typename T>
inline void PrefetchToRead(const T* at) {
  const char* ahead = reinterpret_cast<const char*>(at) + kPrefetchBytes;
  for (std::size_t i = 0; i < kStripElements * sizeof(T); i += kCacheLineBytes) {
    __builtin_prefetch(ahead + i, 0, 3);
  }
}
template <typename T>
inline void PrefetchToWrite(const T* at) {
  const char* ahead = reinterpret_cast<const char*>(at) + kPrefetchBytes;
  for (std::size_t i = 0; i < kStripElements * sizeof(T); i += kCacheLineBytes) {
    __builtin_prefetch(ahead + i, 1, 3);
  }
}

// Calls line(i, width) for consecutive ranges [i, i + width) that cover [0, n).
// `width` is kStripElements, as a constant of its type, but for what is left.
template <typename Line>
inline void ForEachStrip(std::size_t n, Line line) {
  std::size_t i = 0;
  for (; i + kStripElements <= n; i += kStripElements) {
    line(i, std::integral_constant<std::size_t, kStripElements>());
  }
  if (i < n) line(i, n - i);
}

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_NUMERIC_VECTOR_LOOP_H_
