#include "worker/transport/shm/shm_transport.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "worker/combine/combine.h"
#include "worker/memory/huge_pages.h"
#include "worker/transport/checked_transport.h"
#include "worker/transport/pieces.h"
#include "worker/transport/shm/control_block.h"
#include "worker/transport/shm/segment.h"
#include "worker/transport/shm/stream_copy.h"
#include "worker/transport/shm/waiter.h"

namespace lockstep {
namespace {

using shm::ControlBlock;
using shm::kPieceBytes;
using shm::kPieces;
using shm::RankSlot;

// Where rank 0's segment is; the nonce tells it from another that took its place.
struct Endpoint {
  std::int32_t pid = 0;
  std::int32_t fd = 0;
  std::uint64_t nonce = 0;

  std::string Encode() const { return absl::StrCat(pid, " ", fd, " ", nonce); }

  static absl::StatusOr<Endpoint> Decode(const std::string& text) {
    const std::vector<std::string> fields = absl::StrSplit(text, ' ');
    Endpoint endpoint;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &endpoint.pid) ||
        !absl::SimpleAtoi(fields[1], &endpoint.fd) ||
        !absl::SimpleAtoi(fields[2], &endpoint.nonce)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank 0's endpoint is no shared memory: '", text, "'; do all ranks use shm?"));
    }
    return endpoint;
  }
};

std::int64_t SlotsOffset() { return sizeof(ControlBlock); }
std::int64_t ScratchOffset(int world_size) {
  return PageAligned(SlotsOffset() + world_size * sizeof(RankSlot));
}
std::int64_t ControlBytes(int world_size) {
  return ScratchOffset(world_size) + world_size * shm::kScratchBytes;
}

// What a list of this size leaves in the caches, little of it is there when its
// reader comes.
constexpr std::int64_t kStreamedBytes = 4 << 20;

// A list is cut into at least so many pieces, so that packing and unpacking overlap,
// down to a size below which handing over costs more than it hides.
constexpr std::int64_t kLeastPieces = 8;
constexpr std::int64_t kLeastPieceBytes = 16 << 10;

// Of a list of so many bytes; alike on all ranks.
std::int64_t PieceBytesFor(std::int64_t bytes) {
  const std::int64_t even = (bytes / kLeastPieces + 63) / 64 * 64;
  return std::clamp(even, kLeastPieceBytes, kPieceBytes);
}

std::int64_t BytesOf(std::span<const TensorView> views) {
  std::int64_t sum = 0;
  for (const TensorView& view : views) sum += view.bytes();
  return sum;
}

class ShmTransport final : public CheckedTransport {
 public:
  ShmTransport(Group group, shm::Segment segment, shm::Mapping control)
      : CheckedTransport(std::move(group)),
        segment_(std::move(segment)),
        mapping_(std::move(control)),
        control_(reinterpret_cast<ControlBlock*>(mapping_.data())),
        slots_(reinterpret_cast<RankSlot*>(mapping_.data() + SlotsOffset()),
               static_cast<std::size_t>(world_size())),
        waiter_(control_, slots_, rank(), this->group().members),
        end_(mapping_.bytes()) {}

  ~ShmTransport() override {
    slots_[rank()].left.store(1, std::memory_order_seq_cst);
    waiter_.Ring();
  }

  absl::Status Form() {
    StartDeadline();
    slots_[rank()].pid.store(getpid(), std::memory_order_release);
    return Barrier();
  }

 private:
  absl::Status Barrier() {
    ++barriers_;
    waiter_.Publish(&RankSlot::arrived, barriers_);
    return waiter_.AwaitAll(&RankSlot::arrived, barriers_, deadline());
  }

  absl::StatusOr<std::vector<Call>> ExchangeCalls(const Call& mine) override {
    const int parity = static_cast<int>((barriers_ + 1) % 2);
    slots_[rank()].calls[parity] = mine;
    LOCKSTEP_RETURN_IF_ERROR(Barrier());
    std::vector<Call> calls;
    calls.reserve(slots_.size());
    for (const RankSlot& slot : slots_) calls.push_back(slot.calls[parity]);
    return calls;
  }

  // Pieces are numbered over the life of the transport, alike on all ranks. Piece
  // k of a rank lies in its scratch until every rank has consumed k.
  std::byte* Piece(int rank, std::uint64_t number) const {
    return mapping_.data() + ScratchOffset(world_size()) + rank * shm::kScratchBytes +
           static_cast<std::int64_t>(number % kPieces) * kPieceBytes;
  }

  absl::Status AwaitRoomFor(std::uint64_t number) {
    if (number < kPieces) return absl::OkStatus();
    return waiter_.AwaitAll(&RankSlot::consumed, number - kPieces + 1, deadline());
  }

  absl::Status MoveBroadcast(std::span<const TensorView> views, int root) override {
    const std::int64_t bytes = BytesOf(views);
    const bool is_large = bytes >= kStreamedBytes;
    PieceCutter cutter(views, PieceBytesFor(bytes));
    for (; cutter.Next(); ++pieces_) {
      if (rank() == root) {
        LOCKSTEP_RETURN_IF_ERROR(AwaitRoomFor(pieces_));
        cutter.Pack(Piece(root, pieces_));
        waiter_.Publish(&RankSlot::produced, pieces_ + 1);
      } else {
        LOCKSTEP_RETURN_IF_ERROR(
            waiter_.AwaitOne(root, &RankSlot::produced, pieces_ + 1, deadline()));
        const std::byte* piece = Piece(root, pieces_);
        is_large ? cutter.Unpack(piece, shm::StreamCopy) : cutter.Unpack(piece);
      }
      waiter_.Publish(&RankSlot::consumed, pieces_ + 1);
    }
    return absl::OkStatus();
  }

  // In rounds: in each every rank has one piece for one other, or none.
  absl::Status MovePassages(std::span<const Passage> passages) override {
    struct Slice {
      const Passage* passage = nullptr;
      std::int64_t offset = 0;
      std::int64_t bytes = 0;
    };
    std::vector<std::vector<Slice>> slices(slots_.size());  // by sender, in their order
    std::size_t rounds = 0;
    for (const Passage& passage : passages) {
      std::vector<Slice>& sent = slices[passage.from];
      const std::int64_t bytes = passage.view.bytes();
      for (std::int64_t at = 0; at < bytes; at += kPieceBytes) {
        sent.push_back({&passage, at, std::min(kPieceBytes, bytes - at)});
      }
      rounds = std::max(rounds, sent.size());
    }
    for (std::size_t round = 0; round < rounds; ++round, ++pieces_) {
      if (const std::vector<Slice>& mine = slices[rank()]; round < mine.size()) {
        LOCKSTEP_RETURN_IF_ERROR(AwaitRoomFor(pieces_));
        const Slice& slice = mine[round];
        std::memcpy(Piece(rank(), pieces_), slice.passage->view.data + slice.offset, slice.bytes);
      }
      waiter_.Publish(&RankSlot::produced, pieces_ + 1);
      for (int from = 0; from < world_size(); ++from) {
        if (round >= slices[from].size()) continue;
        const Slice& slice = slices[from][round];
        if (slice.passage->to != rank()) continue;
        LOCKSTEP_RETURN_IF_ERROR(
            waiter_.AwaitOne(from, &RankSlot::produced, pieces_ + 1, deadline()));
        std::memcpy(slice.passage->view.data + slice.offset, Piece(from, pieces_), slice.bytes);
      }
      waiter_.Publish(&RankSlot::consumed, pieces_ + 1);
    }
    return absl::OkStatus();
  }

  absl::Status MoveAllReduce(std::span<const TensorView> views, ReduceOp op,
                             std::span<const double> weights) override {
    // Each rank reduces its part of every piece for all. It packs one piece ahead of
    // the one it reduces and takes the one behind it, so that waits are short.
    const std::int64_t piece_bytes = PieceBytesFor(BytesOf(views));
    PieceCutter packed(views, piece_bytes);
    PieceCutter reduced(views, piece_bytes);
    PieceCutter taken(views, piece_bytes);
    for (std::uint64_t ahead = 0;; ++ahead) {
      if (packed.Next()) LOCKSTEP_RETURN_IF_ERROR(PackPiece(packed, pieces_ + ahead));
      if (ahead < 1) continue;
      if (reduced.Next()) {
        LOCKSTEP_RETURN_IF_ERROR(ReducePart(reduced, op, weights, pieces_ + ahead - 1));
      }
      if (ahead < 2) continue;
      if (!taken.Next()) {
        pieces_ += ahead - 2;
        return absl::OkStatus();
      }
      LOCKSTEP_RETURN_IF_ERROR(TakeParts(taken, pieces_ + ahead - 2));
    }
  }

  absl::Status PackPiece(const PieceCutter& piece, std::uint64_t number) {
    LOCKSTEP_RETURN_IF_ERROR(AwaitRoomFor(number));
    piece.Pack(Piece(rank(), number));
    waiter_.Publish(&RankSlot::produced, number + 1);
    return absl::OkStatus();
  }

  // Reduces this rank's part of the ranks' pieces into its own.
  absl::Status ReducePart(const PieceCutter& piece, ReduceOp op, std::span<const double> weights,
                          std::uint64_t number) {
    LOCKSTEP_RETURN_IF_ERROR(waiter_.AwaitAll(&RankSlot::produced, number + 1, deadline()));
    std::vector<const std::byte*> pieces;
    for (int r = 0; r < world_size(); ++r) pieces.push_back(Piece(r, number));
    std::vector<Fragment> mine = piece.Part(rank(), world_size());
    for (Fragment& f : mine) f.data = Piece(rank(), number) + f.offset;
    ReducePieces(mine, op, weights, pieces);
    waiter_.Publish(&RankSlot::reduced, number + 1);
    return absl::OkStatus();
  }

  // Takes from each rank the part that it reduced.
  absl::Status TakeParts(const PieceCutter& piece, std::uint64_t number) {
    LOCKSTEP_RETURN_IF_ERROR(waiter_.AwaitAll(&RankSlot::reduced, number + 1, deadline()));
    for (int r = 0; r < world_size(); ++r) {
      for (const Fragment& f : piece.Part(r, world_size())) {
        std::memcpy(f.data, Piece(r, number) + f.offset, f.bytes);
      }
    }
    waiter_.Publish(&RankSlot::consumed, number + 1);
    return absl::OkStatus();
  }

  absl::StatusOr<Arena> MakeArena(int index, ArenaUse use, DType dtype,
                                  std::int64_t elements) override {
    const bool shared = use == ArenaUse::kParameters;
    const std::int64_t stride =
        HugePageAligned(std::max<std::int64_t>(elements * ElementBytes(dtype), 1));
    const std::int64_t regions = shared ? 1 : world_size();
    std::int64_t bytes = 0;
    std::int64_t end = 0;
    if (stride >= kHugePageBytes) end_ = RoundUp(end_, kHugePageBytes);
    if (__builtin_mul_overflow(stride, regions, &bytes) ||
        __builtin_add_overflow(end_, bytes, &end)) {
      return absl::ResourceExhaustedError("arenas beyond 63 bits of bytes");
    }
    // The others map before the memory is there and touch it only after all have
    // reported, rank 0 about the growth.
    if (rank() == 0) LOCKSTEP_RETURN_IF_ERROR(segment_.Grow(end));
    LOCKSTEP_ASSIGN_OR_RETURN(shm::Mapping mapping, segment_.Map(end_, bytes));
    if (rank() == 0) CollapseIntoHugePages(mapping.data(), bytes);
    end_ = end;
    regions_.push_back({dtype, std::move(mapping), shared ? 0 : stride});
    return Arena{.dtype = dtype,
                 .data = regions_.back().Of(rank()),
                 .elements = elements,
                 .shared = shared};
  }

  absl::Status MoveToOwners(int arena, std::span<const Shard> shards,
                            std::span<const float> weights,
                            const ConsumeSums& consume) override {
    // All ranks have met: their gradients are complete, and stay until they meet
    // again. Each owner reads its own range of all and writes its own of its own.
    const Shard& mine = shards[rank()];
    const Region& region = regions_[arena];
    std::vector<const std::byte*> sources;
    for (int r = 0; r < world_size(); ++r) {
      sources.push_back(region.Of(r) + mine.begin * ElementBytes(region.dtype));
    }
    WeightedSum(region.dtype, sources, weights, mine.elements(), consume);
    return absl::OkStatus();
  }

  void Interrupt(const absl::Status& why) override { waiter_.PoisonWith(why); }

  struct Region {  // of an arena
    DType dtype;
    shm::Mapping mapping;
    std::int64_t stride = 0;  // bytes from rank to rank; 0: one for all

    std::byte* Of(int rank) const { return mapping.data() + rank * stride; }
  };

  const shm::Segment segment_;
  const shm::Mapping mapping_;
  ControlBlock* const control_;
  const std::span<RankSlot> slots_;
  shm::Waiter waiter_;
  std::int64_t end_;  // of the segment, arenas included
  std::vector<Region> regions_;
  std::uint64_t barriers_ = 0;
  std::uint64_t pieces_ = 0;
};

absl::StatusOr<std::unique_ptr<ShmTransport>> FormAsRankZero(const Group& group,
                                                             const ExchangeEndpoint& exchange) {
  const int world_size = static_cast<int>(group.members.size());
  LOCKSTEP_ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Create(ControlBytes(world_size)));
  LOCKSTEP_ASSIGN_OR_RETURN(shm::Mapping mapping, segment.Map(0, ControlBytes(world_size)));
  Endpoint endpoint = {.pid = getpid(), .fd = segment.fd()};
  if (getrandom(&endpoint.nonce, sizeof(endpoint.nonce), 0) != sizeof(endpoint.nonce)) {
    return absl::InternalError("the kernel gave no random number");
  }
  auto* control = reinterpret_cast<ControlBlock*>(mapping.data());
  control->magic = shm::kMagic;
  control->version = shm::kVersion;
  control->nonce = endpoint.nonce;
  control->epoch = group.epoch.value();
  control->world_size = world_size;
  LOCKSTEP_RETURN_IF_ERROR(exchange(endpoint.Encode()).status());
  return std::make_unique<ShmTransport>(group, std::move(segment), std::move(mapping));
}

absl::StatusOr<std::unique_ptr<ShmTransport>> FormAsPeer(const Group& group,
                                                         const ExchangeEndpoint& exchange) {
  const int world_size = static_cast<int>(group.members.size());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, exchange(std::nullopt));
  LOCKSTEP_ASSIGN_OR_RETURN(const Endpoint endpoint, Endpoint::Decode(text));
  LOCKSTEP_ASSIGN_OR_RETURN(shm::Segment segment,
                            shm::Segment::Open(endpoint.pid, endpoint.fd));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t size, segment.Size());
  if (size < ControlBytes(world_size)) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank 0's shared memory has ", size, " bytes, ", ControlBytes(world_size),
                     " were expected; do all ranks run the same build and know the same members?"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(shm::Mapping mapping, segment.Map(0, ControlBytes(world_size)));
  const auto* control = reinterpret_cast<const ControlBlock*>(mapping.data());
  if (control->magic != shm::kMagic || control->version != shm::kVersion ||
      control->nonce != endpoint.nonce || control->epoch != group.epoch.value() ||
      control->world_size != world_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank 0's shared memory is not that of epoch ", group.epoch.value(), " with ", world_size,
        " ranks; do all ranks run the same build on one host?"));
  }
  return std::make_unique<ShmTransport>(group, std::move(segment), std::move(mapping));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> ShmFactory::Create(const Group& group,
                                                              const ExchangeEndpoint& exchange) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(group));
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<ShmTransport> transport,
      group.rank == 0 ? FormAsRankZero(group, exchange) : FormAsPeer(group, exchange));
  // A peer that cannot open the segment cannot say so in it, but the coordinator can.
  if (group.on_forming) group.on_forming(transport.get());
  const absl::Status formed = transport->Form();
  if (formed.ok()) return transport;
  if (group.on_forming) group.on_forming(nullptr);
  return formed;
}

}  // namespace lockstep
