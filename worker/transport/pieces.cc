#include "worker/transport/pieces.h"

#include <algorithm>
#include <cstring>

#include "worker/transport/combine/combine.h"

namespace lockstep {
namespace {

// The place in a fragment that comes at or after a place in its piece, between
// whole elements: every element size divides 16.
std::int64_t CutOf(const Fragment& fragment, std::int64_t place) {
  const std::int64_t inside = std::max<std::int64_t>(place - fragment.offset, 0);
  return std::min((inside + 15) / 16 * 16, fragment.bytes);
}

}  // namespace

bool PieceCutter::Next() {
  fragments_.clear();
  bytes_ = 0;
  while (view_ < views_.size()) {
    const TensorView& view = views_[view_];
    const std::int64_t left = view.bytes() - begin_;
    if (left > 0) {
      const std::int64_t offset = (bytes_ + 7) / 8 * 8;
      // Every element size divides 16.
      const std::int64_t room = (piece_bytes_ - offset) / 16 * 16;
      const std::int64_t taken = std::min(left, room);
      if (taken <= 0) break;
      fragments_.push_back({view.spec.dtype, view.data + begin_, taken, offset});
      bytes_ = offset + taken;
      begin_ += taken;
      if (taken < left) break;
    }
    ++view_;
    begin_ = 0;
  }
  return !fragments_.empty();
}

std::vector<Fragment> PieceCutter::Part(int part, int parts) const {
  const std::int64_t begin = bytes_ * part / parts;
  const std::int64_t end = bytes_ * (part + 1) / parts;
  std::vector<Fragment> found;
  auto f = std::ranges::partition_point(
      fragments_, [begin](const Fragment& f) { return f.offset + f.bytes <= begin; });
  for (; f != fragments_.end() && f->offset < end; ++f) {
    const std::int64_t from = CutOf(*f, begin);
    const std::int64_t to = CutOf(*f, end);
    if (from < to) found.push_back({f->dtype, f->data + from, to - from, f->offset + from});
  }
  return found;
}

void PieceCutter::Pack(std::byte* piece) const {
  for (const Fragment& f : fragments_) std::memcpy(piece + f.offset, f.data, f.bytes);
}

void PieceCutter::Unpack(const std::byte* piece) const {
  for (const Fragment& f : fragments_) std::memcpy(f.data, piece + f.offset, f.bytes);
}

void PieceCutter::Unpack(const std::byte* piece,
                         void (*copy)(std::byte* to, const std::byte* from,
                                      std::int64_t bytes)) const {
  for (const Fragment& f : fragments_) copy(f.data, piece + f.offset, f.bytes);
}

void ReducePieces(std::span<const Fragment> fragments, ReduceOp op,
                  std::span<const double> weights, std::span<const std::byte* const> pieces) {
  std::vector<const std::byte*> sources(pieces.size());
  for (const Fragment& f : fragments) {
    for (std::size_t r = 0; r < pieces.size(); ++r) sources[r] = pieces[r] + f.offset;
    Reduce(f.dtype, op, weights, sources, f.data, f.bytes / ElementBytes(f.dtype));
  }
}

}  // namespace lockstep
