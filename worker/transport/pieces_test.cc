#include "worker/transport/pieces.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

// Of each size of an element.
constexpr DType kDTypes[] = {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kInt64,
                             DType::kComplex128};

// Views of drawn sizes and dtypes with memory of their own.
struct Views {
  std::vector<std::vector<std::byte>> memory;
  std::vector<TensorView> views;
};

Views RandomViews(std::uint64_t seed) {
  Prng prng(seed);
  Views made;
  for (int n = static_cast<int>(prng.Between(1, 12)); n > 0; --n) {
    const DType dtype = kDTypes[prng.Below(std::size(kDTypes))];
    const std::int64_t elements = prng.Between(0, prng.Below(3) == 0 ? 900 : 20);
    made.memory.emplace_back(elements * ElementBytes(dtype));
    for (std::byte& byte : made.memory.back()) byte = static_cast<std::byte>(prng.Below(256));
    made.views.push_back({{.name = "t", .dtype = dtype, .shape = {elements}},
                          made.memory.back().data()});
  }
  return made;
}

TEST(PieceCutter, PartsHoldEachByteOnceInWholeElementsAndAreAboutEqual) {
  constexpr std::int64_t kPieceBytes = 1024;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Views made = RandomViews(seed);
    const int parts = 1 + static_cast<int>(seed % 5);
    for (PieceCutter cutter(made.views, kPieceBytes); cutter.Next();) {
      std::vector<int> times(kPieceBytes);  // how often each byte of the piece is in a part
      for (const Fragment& f : cutter.fragments()) {
        for (std::int64_t i = 0; i < f.bytes; ++i) --times[f.offset + i];
      }
      for (int part = 0; part < parts; ++part) {
        std::int64_t sum = 0;
        for (const Fragment& f : cutter.Part(part, parts)) {
          ASSERT_GT(f.bytes, 0);
          ASSERT_EQ(f.bytes % ElementBytes(f.dtype), 0) << seed;
          sum += f.bytes;
          for (std::int64_t i = 0; i < f.bytes; ++i) ++times[f.offset + i];
          // Place in the piece and place in the view are the same.
          const bool is_in_one = std::ranges::any_of(cutter.fragments(), [&](const Fragment& whole) {
            return f.dtype == whole.dtype && f.data - whole.data == f.offset - whole.offset &&
                   f.offset >= whole.offset && f.offset + f.bytes <= whole.offset + whole.bytes;
          });
          ASSERT_TRUE(is_in_one) << seed;
        }
        EXPECT_LE(sum, cutter.bytes() / parts + 32) << seed;
      }
      EXPECT_EQ(std::ranges::count(times, 0), kPieceBytes) << seed;
    }
  }
}

TEST(PieceCutter, UnpacksByTheCopyThatItIsGiven) {
  static std::int64_t copied = 0;
  copied = 0;
  const Views from = RandomViews(5);
  Views to = RandomViews(5);
  std::int64_t bytes = 0;
  for (std::vector<std::byte>& memory : to.memory) {
    std::ranges::fill(memory, std::byte{0});
    bytes += static_cast<std::int64_t>(memory.size());
  }
  std::vector<std::byte> piece(512);
  PieceCutter packer(from.views, 512);
  PieceCutter unpacker(to.views, 512);
  while (packer.Next() && unpacker.Next()) {
    packer.Pack(piece.data());
    unpacker.Unpack(piece.data(), [](std::byte* into, const std::byte* source, std::int64_t n) {
      copied += n;
      std::memcpy(into, source, n);
    });
  }
  EXPECT_EQ(to.memory, from.memory);
  EXPECT_EQ(copied, bytes);
}

// Views of bytes of given sizes.
class ByteViews {
 public:
  explicit ByteViews(const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t size : sizes) {
      memory_.emplace_back(size);
      views_.push_back({.spec = {.name = "v", .dtype = DType::kUint8, .shape = {size}},
                        .data = memory_.back().data()});
    }
  }
  std::span<const TensorView> get() const { return views_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<TensorView> views_;
};

std::vector<std::vector<std::int64_t>> CutSizes(const ByteViews& views, std::int64_t piece_bytes,
                                                std::int64_t alone_bytes) {
  std::vector<std::vector<std::int64_t>> pieces;
  for (PieceCutter cutter(views.get(), piece_bytes, alone_bytes); cutter.Next();) {
    pieces.emplace_back();
    for (const Fragment& f : cutter.fragments()) pieces.back().push_back(f.bytes);
  }
  return pieces;
}

TEST(PieceCutter, ALargeViewSharesNoPieceWithOthers) {
  EXPECT_THAT(CutSizes(ByteViews({10, 20, 100, 0, 5, 300, 7, 6}), 128, 100),
              ElementsAre(ElementsAre(10, 20), ElementsAre(100), ElementsAre(5), ElementsAre(128),
                          ElementsAre(128), ElementsAre(44), ElementsAre(7, 6)));
}

TEST(PieceCutter, FragmentsStartAtMultiplesOfSixteenBytes) {
  const ByteViews views({1, 17, 3});
  PieceCutter cutter(views.get(), 128);
  ASSERT_TRUE(cutter.Next());
  std::vector<std::int64_t> offsets;
  for (const Fragment& f : cutter.fragments()) offsets.push_back(f.offset);
  EXPECT_THAT(offsets, ElementsAre(0, 16, 48));
  EXPECT_EQ(cutter.bytes(), 51);
}

TEST(PieceCutter, PartsOfAPieceCoverEachByteOnce) {
  const ByteViews views({1, 17, 3, 64, 2});
  PieceCutter cutter(views.get(), 1024);
  ASSERT_TRUE(cutter.Next());
  for (std::int64_t cut = 0; cut <= cutter.bytes(); cut += 16) {
    std::vector<std::byte*> covered;
    for (const auto& [begin, end] :
         {std::pair(std::int64_t{0}, cut), std::pair(cut, cutter.bytes())}) {
      for (const Fragment& f : Clip(cutter.fragments(), begin, end)) {
        EXPECT_LE(f.offset + f.bytes, end - begin);
        for (std::int64_t i = 0; i < f.bytes; ++i) covered.push_back(f.data + i);
      }
    }
    std::vector<std::byte*> all;
    for (const TensorView& view : views.get()) {
      for (std::int64_t i = 0; i < view.bytes(); ++i) all.push_back(view.data + i);
    }
    EXPECT_EQ(covered, all) << cut;
  }
}

}  // namespace
}  // namespace lockstep
