#include "worker/transport/shm/stream_copy.h"

#include <vector>

#include "gtest/gtest.h"

namespace lockstep::shm {
namespace {

constexpr std::int64_t kLine = 64;
constexpr std::byte kGuard{0xa5};

std::vector<std::byte> Counting(std::int64_t bytes) {
  std::vector<std::byte> values(bytes);
  for (std::int64_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i % 251);
  return values;
}

void ExpectCopied(std::int64_t from_offset, std::int64_t to_offset, std::int64_t bytes) {
  const std::vector<std::byte> source = Counting(from_offset + bytes);
  // The heap aligns to 16 only; offsets count from a line.
  std::vector<std::byte> memory(to_offset + bytes + 3 * kLine, kGuard);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::int64_t begin = static_cast<std::int64_t>(-address % kLine) + to_offset;

  StreamCopy(memory.data() + begin, source.data() + from_offset, bytes);

  for (std::int64_t i = 0; i < static_cast<std::int64_t>(memory.size()); ++i) {
    const bool inside = i >= begin && i < begin + bytes;
    ASSERT_EQ(memory[i], inside ? source[from_offset + i - begin] : kGuard)
        << bytes << " bytes from offset " << from_offset << " to " << to_offset << ", byte "
        << i - begin;
  }
}

TEST(StreamCopy, CopiesAnyLengthFromAndToAnyAlignmentAndNothingElse) {
  for (std::int64_t to = 0; to < kLine; ++to) {
    for (std::int64_t bytes = 0; bytes <= 3 * kLine + 1; ++bytes) {
      ASSERT_NO_FATAL_FAILURE(ExpectCopied(to % 17, to, bytes));
    }
  }
  for (std::int64_t from = 0; from < kLine; ++from) {
    for (const std::int64_t to : {0, 1, 16, 63}) {
      ASSERT_NO_FATAL_FAILURE(ExpectCopied(from, to, 4 * kLine + 5));
    }
  }
}

TEST(StreamCopy, CopiesManyPages) { ExpectCopied(3, 9, (1 << 20) + 11); }

TEST(StreamCopy, OfNothingTouchesNothing) { StreamCopy(nullptr, nullptr, 0); }

}  // namespace
}  // namespace lockstep::shm
