#include "worker/transport/nccl/view_mover.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/base/status_macros.h"

namespace lockstep::nccl_link {
namespace {

constexpr absl::string_view kBroadcast = "broadcast of tensors";
constexpr absl::string_view kReduction = "reduction of tensors";

// From here on a call of its own costs less than copies into a piece and out of it.
constexpr std::int64_t kAloneBytes = std::int64_t{1} << 20;

bool BeyondReach(Reach reach) { return reach == Reach::kNone; }

std::int64_t TotalBytes(std::span<const TensorView> views) {
  std::int64_t bytes = 0;
  // Each begins at a multiple of 16.
  for (const TensorView& view : views) bytes += (view.bytes() + 15) / 16 * 16;
  return bytes;
}

}  // namespace

absl::Status ViewMover::Broadcast(std::span<const TensorView> views, int root) {
  const std::int64_t piece_bytes = std::min(staging_.piece_bytes(), TotalBytes(views));
  PieceCutter piece(views, piece_bytes, kAloneBytes);
  int under_way = 0;
  while (piece.Next()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Run> runs, RunsOf(piece));
    const bool in_place = piece.fragments().size() == 1 && runs[0].reach == Reach::kUsed;
    // Staging memory is used by one piece at a time.
    if (under_way >= (in_place ? kMaxUnderWay : 1)) {
      LOCKSTEP_RETURN_IF_ERROR(communicator_.AwaitAll(kBroadcast));
      under_way = 0;
    }
    std::byte* data = piece.fragments()[0].data;
    std::byte* host = nullptr;
    if (!in_place) {
      LOCKSTEP_ASSIGN_OR_RETURN(data, staging_.OnDevice(piece_bytes));
      if (std::ranges::any_of(runs, BeyondReach, &Run::reach)) {
        LOCKSTEP_ASSIGN_OR_RETURN(host, staging_.OnHost(piece_bytes));
      }
      if (rank_ == root) LOCKSTEP_RETURN_IF_ERROR(Pack(runs, data, host));
    }
    const auto bytes = static_cast<std::size_t>(piece.bytes());
    LOCKSTEP_RETURN_IF_ERROR(
        communicator_.Put(kBroadcast, [&](ncclComm_t comm, cudaStream_t stream) {
          return device_.api().Broadcast(data, data, bytes, ncclUint8, root, comm, stream);
        }));
    ++under_way;
    (rank_ == root ? traffic_.sent_bytes : traffic_.received_bytes) += piece.bytes();
    if (!in_place && rank_ != root) {
      LOCKSTEP_RETURN_IF_ERROR(communicator_.AwaitAll(kBroadcast));
      LOCKSTEP_RETURN_IF_ERROR(Unpack(runs, data, host));
    }
  }
  return communicator_.AwaitAll(kBroadcast);
}

absl::Status ViewMover::AllReduce(std::span<const TensorView> views, ReduceOp op,
                                  std::span<const double> weights) {
  const std::int64_t piece_bytes = std::min(staging_.BytesOf(world_size_), TotalBytes(views));
  LOCKSTEP_ASSIGN_OR_RETURN(std::byte* const gathered,
                            staging_.OnDevice(piece_bytes * world_size_));
  LOCKSTEP_ASSIGN_OR_RETURN(std::byte* const on_host, staging_.OnHost(piece_bytes * world_size_));
  PieceCutter piece(views, piece_bytes);
  while (piece.Next()) {
    const std::int64_t bytes = piece.bytes();
    std::byte* const mine = gathered + rank_ * bytes;
    // Where this rank's version comes to lie on the host, before and after.
    std::byte* const result = on_host + rank_ * bytes;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Run> runs, RunsOf(piece));
    LOCKSTEP_RETURN_IF_ERROR(Pack(runs, mine, result));
    LOCKSTEP_RETURN_IF_ERROR(
        communicator_.Put(kReduction, [&](ncclComm_t comm, cudaStream_t stream) {
          return device_.api().AllGather(mine, gathered, static_cast<std::size_t>(bytes),
                                         ncclUint8, comm, stream);
        }));
    traffic_.sent_bytes += bytes;
    traffic_.received_bytes += bytes * (world_size_ - 1);
    LOCKSTEP_RETURN_IF_ERROR(device_.Copy(on_host, gathered, bytes * world_size_));
    LOCKSTEP_RETURN_IF_ERROR(communicator_.AwaitAll(kReduction));

    std::vector<const std::byte*> versions;
    for (int r = 0; r < world_size_; ++r) versions.push_back(on_host + r * bytes);
    std::vector<Fragment> fragments(piece.fragments().begin(), piece.fragments().end());
    for (Fragment& f : fragments) f.data = result + f.offset;
    ReducePieces(fragments, op, weights, versions);
    LOCKSTEP_RETURN_IF_ERROR(UnpackFromHost(runs, result));
    LOCKSTEP_RETURN_IF_ERROR(communicator_.AwaitAll(kReduction));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ViewMover::Run>> ViewMover::RunsOf(const PieceCutter& piece) {
  const std::span<const Fragment> fragments = piece.fragments();
  std::vector<Run> runs;
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Reach reach, device_.ReachOf(fragments[i].data));
    if (!runs.empty() && BeyondReach(reach) && BeyondReach(runs.back().reach)) {
      const std::size_t first = i - runs.back().fragments.size();
      runs.back().fragments = fragments.subspan(first, i + 1 - first);
    } else {
      runs.push_back({reach, fragments.subspan(i, 1)});
    }
  }
  return runs;
}

absl::Status ViewMover::Pack(std::span<const Run> runs, std::byte* device, std::byte* host) {
  for (const Run& run : runs) {
    const std::byte* from = run.fragments[0].data;
    if (BeyondReach(run.reach)) {
      for (const Fragment& f : run.fragments) std::memcpy(host + f.offset, f.data, f.bytes);
      from = host + run.begin();
    }
    LOCKSTEP_RETURN_IF_ERROR(device_.Copy(device + run.begin(), from, run.bytes()));
  }
  return absl::OkStatus();
}

absl::Status ViewMover::Unpack(std::span<const Run> runs, const std::byte* device,
                               std::byte* host) {
  for (const Run& run : runs) {
    std::byte* const to = BeyondReach(run.reach) ? host + run.begin() : run.fragments[0].data;
    LOCKSTEP_RETURN_IF_ERROR(device_.Copy(to, device + run.begin(), run.bytes()));
  }
  if (host == nullptr) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(communicator_.AwaitAll(kBroadcast));
  for (const Run& run : runs) {
    if (!BeyondReach(run.reach)) continue;
    for (const Fragment& f : run.fragments) std::memcpy(f.data, host + f.offset, f.bytes);
  }
  return absl::OkStatus();
}

absl::Status ViewMover::UnpackFromHost(std::span<const Run> runs, const std::byte* host) {
  for (const Run& run : runs) {
    for (const Fragment& f : run.fragments) {
      if (BeyondReach(run.reach)) {
        std::memcpy(f.data, host + f.offset, f.bytes);
      } else {
        LOCKSTEP_RETURN_IF_ERROR(device_.Copy(f.data, host + f.offset, f.bytes));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep::nccl_link
