#include "worker/transport/pieces.h"

#include <algorithm>
#include <cstring>

#include "worker/combine/combine.h"

namespace lockstep {

bool PieceCutter::Next() {
  fragments_.clear();
  bytes_ = 0;
  while (view_ < views_.size()) {
    const TensorView& view = views_[view_];
    const std::int64_t left = view.bytes() - begin_;
    if (left > 0) {
      const bool alone = view.bytes() >= alone_bytes_;
      if (alone && !fragments_.empty()) break;
      const std::int64_t offset = (bytes_ + 15) / 16 * 16;
      const std::int64_t room = (piece_bytes_ - offset) / 16 * 16;
      const std::int64_t taken = std::min(left, room);
      if (taken <= 0) break;
      fragments_.push_back({view.spec.dtype, view.data + begin_, taken, offset});
      bytes_ = offset + taken;
      begin_ += taken;
      if (taken < left) break;
      if (alone) {
        ++view_;
        begin_ = 0;
        break;
      }
    }
    ++view_;
    begin_ = 0;
  }
  return !fragments_.empty();
}

std::vector<Fragment> PieceCutter::Part(int part, int parts) const {
  // Between whole elements, as fragments begin there and every size divides 16.
  const auto cut = [&](int at) {
    return std::min((bytes_ * at / parts + 15) / 16 * 16, bytes_);
  };
  std::vector<Fragment> found = Clip(fragments_, cut(part), cut(part + 1));
  for (Fragment& f : found) f.offset += cut(part);
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

std::vector<Fragment> Clip(std::span<const Fragment> fragments, std::int64_t begin,
                           std::int64_t end) {
  std::vector<Fragment> clipped;
  auto f = std::ranges::partition_point(
      fragments, [begin](const Fragment& each) { return each.offset + each.bytes <= begin; });
  for (; f != fragments.end() && f->offset < end; ++f) {
    const std::int64_t from = std::max(begin, f->offset);
    const std::int64_t to = std::min(end, f->offset + f->bytes);
    if (from < to) {
      clipped.push_back({f->dtype, f->data + (from - f->offset), to - from, from - begin});
    }
  }
  return clipped;
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
