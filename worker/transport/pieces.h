// Pieces: a list of views cut and packed into messages of bounded size.
//
// Small views share a piece; a large one spans many. A fragment starts at a
// multiple of 16 bytes of its piece, which every element size divides, and holds
// whole elements. Ranks with the same layout cut alike. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_PIECES_H_
#define LOCKSTEP_WORKER_TRANSPORT_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "common/manifest/dtype.h"
#include "common/manifest/reduction.h"
#include "worker/transport/tensor_view.h"

namespace lockstep {

struct Fragment {
  DType dtype = DType::kUnspecified;
  std::byte* data = nullptr;  // in the view
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  // in the piece
};

class PieceCutter {
 public:
  // `views` must outlive it. `piece_bytes`: a multiple of 16. A view of at least
  // `alone_bytes` shares no piece with others, so that it need not be packed.
  PieceCutter(std::span<const TensorView> views, std::int64_t piece_bytes,
              std::int64_t alone_bytes = std::numeric_limits<std::int64_t>::max())
      : views_(views), piece_bytes_(piece_bytes), alone_bytes_(alone_bytes) {}

  // Cuts the next piece; false if all is cut.
  bool Next();
  std::span<const Fragment> fragments() const { return fragments_; }
  std::int64_t bytes() const { return bytes_; }  // of the piece
  // What the fragments have of part `part` of `parts` of the piece: parts are about
  // equal, hold whole elements, and each byte is in one of them.
  std::vector<Fragment> Part(int part, int parts) const;

  void Pack(std::byte* piece) const;
  void Unpack(const std::byte* piece) const;
  // By another copy than memcpy.
  void Unpack(const std::byte* piece,
              void (*copy)(std::byte* to, const std::byte* from, std::int64_t bytes)) const;

 private:
  const std::span<const TensorView> views_;
  const std::int64_t piece_bytes_;
  const std::int64_t alone_bytes_;
  std::size_t view_ = 0;
  std::int64_t begin_ = 0;  // bytes of views_[view_] that are cut already
  std::vector<Fragment> fragments_;
  std::int64_t bytes_ = 0;
};

// The bytes [begin, end) of a piece, both multiples of 16 or its end; offsets count
// from `begin`.
std::vector<Fragment> Clip(std::span<const Fragment> fragments, std::int64_t begin,
                           std::int64_t end);

// Reduces the ranks' packed pieces, by rank, into the fragments' views.
void ReducePieces(std::span<const Fragment> fragments, ReduceOp op,
                  std::span<const double> weights, std::span<const std::byte* const> pieces);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_PIECES_H_
