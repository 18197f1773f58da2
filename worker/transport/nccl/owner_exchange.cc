#include "worker/transport/nccl/owner_exchange.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/base/status_macros.h"

namespace lockstep::nccl_link {
namespace {

constexpr absl::string_view kSpreading = "spreading of parameters from their owners";
constexpr std::int64_t kSumBytes = sizeof(float);

// All equal, and one after the other from the arena's begin.
bool AreEven(std::span<const Shard> shards) {
  const std::int64_t elements = shards[0].elements();
  for (std::size_t r = 0; r < shards.size(); ++r) {
    if (shards[r].begin != static_cast<std::int64_t>(r) * elements ||
        shards[r].elements() != elements) {
      return false;
    }
  }
  return elements > 0;
}

}  // namespace

Shard OwnerExchange::Pieces::Part(std::int64_t piece, int owner) const {
  const Shard& shard = shards[owner];
  return {std::min(shard.begin + piece * elements, shard.end),
          std::min(shard.begin + (piece + 1) * elements, shard.end)};
}

absl::StatusOr<std::unique_ptr<OwnerExchange>> OwnerExchange::Create(
    Device* device, Communicator* communicator, const Staging* staging, Traffic* traffic,
    VersionExchange* versions, int rank, int world_size) {
  std::unique_ptr<OwnerExchange> exchange(
      new OwnerExchange(device, communicator, staging, traffic, versions, rank, world_size));
  LOCKSTEP_ASSIGN_OR_RETURN(exchange->updated_, Event::Create(&device->api()));
  for (Event& event : exchange->spread_) {
    LOCKSTEP_ASSIGN_OR_RETURN(event, Event::Create(&device->api()));
  }
  return exchange;
}

OwnerExchange::Pieces OwnerExchange::Cut(std::span<const Shard> shards,
                                         std::int64_t element_bytes) const {
  Pieces pieces = {.shards = shards};
  std::int64_t longest = 0;
  for (const Shard& shard : shards) longest = std::max(longest, shard.elements());
  if (longest == 0) return pieces;
  pieces.elements = std::min({longest, staging_.BytesOf(world_size_ - 1) / element_bytes,
                              staging_.piece_bytes() / kSumBytes});
  pieces.count = (longest + pieces.elements - 1) / pieces.elements;
  return pieces;
}

absl::Status OwnerExchange::Reduce(const Arena& gradients, const Arena* parameters,
                                   std::span<const Shard> shards, std::span<const float> weights,
                                   const ConsumeSums& consume) {
  const Pieces pieces = Cut(shards, ElementBytes(gradients.dtype));
  if (pieces.count == 0) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::byte* const beside,
      versions_.Begin(pieces.elements * ElementBytes(gradients.dtype), pieces.elements * kSumBytes));
  float* const sums = reinterpret_cast<float*>(beside);
  LOCKSTEP_RETURN_IF_ERROR(Send(pieces, 0, gradients, weights));
  for (std::int64_t piece = 0; piece < pieces.count; ++piece) {
    if (piece + 1 < pieces.count) {
      LOCKSTEP_RETURN_IF_ERROR(Send(pieces, piece + 1, gradients, weights));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        versions_.AddUp(piece, {gradients, pieces.Part(piece, rank_)}, weights, sums));
    LOCKSTEP_RETURN_IF_ERROR(Consume(pieces, piece, sums, parameters, consume));
    LOCKSTEP_RETURN_IF_ERROR(versions_.Free(piece));
  }
  return communicator_.AwaitAll(parameters == nullptr ? kReduction : kSpreading);
}

absl::Status OwnerExchange::HandOver(std::span<const float> sums, const Arena* parameters,
                                     std::span<const Shard> shards, const ConsumeSums& consume) {
  const Pieces pieces = Cut(shards, kSumBytes);
  for (std::int64_t piece = 0; piece < pieces.count; ++piece) {
    const float* const of_piece = sums.data() + piece * pieces.elements;
    LOCKSTEP_RETURN_IF_ERROR(Consume(pieces, piece, of_piece, parameters, consume));
  }
  return communicator_.AwaitAll(parameters == nullptr ? kReduction : kSpreading);
}

absl::Status OwnerExchange::Send(const Pieces& pieces, std::int64_t piece, const Arena& gradients,
                                 std::span<const float> weights) {
  std::vector<VersionExchange::Part> parts;
  for (int owner = 0; owner < world_size_; ++owner) {
    parts.push_back({gradients, pieces.Part(piece, owner)});
  }
  LOCKSTEP_RETURN_IF_ERROR(versions_.AwaitTurn(piece));
  return versions_.Send(piece, parts, weights);
}

absl::Status OwnerExchange::Consume(const Pieces& pieces, std::int64_t piece, const float* sums,
                                    const Arena* parameters, const ConsumeSums& consume) {
  const Shard mine = pieces.Part(piece, rank_);
  if (mine.elements() > 0) {
    consume(mine.begin - pieces.shards[rank_].begin,
            {sums, static_cast<std::size_t>(mine.elements())});
  }
  if (parameters == nullptr || world_size_ == 1) return absl::OkStatus();
  std::vector<Shard> parts;
  for (int owner = 0; owner < world_size_; ++owner) parts.push_back(pieces.Part(piece, owner));
  Event& spread = spread_[piece % kMaxUnderWay];
  if (piece >= kMaxUnderWay) LOCKSTEP_RETURN_IF_ERROR(communicator_.Await(kSpreading, spread));
  LOCKSTEP_RETURN_IF_ERROR(updated_.Record(device_.arithmetic()));
  LOCKSTEP_RETURN_IF_ERROR(updated_.HoldBack(device_.moves()));
  LOCKSTEP_RETURN_IF_ERROR(SpreadParts(*parameters, parts));
  return spread.Record(device_.moves());
}

absl::Status OwnerExchange::Spread(const Arena& parameters, std::span<const Shard> shards) {
  if (AreEven(shards)) {
    const std::int64_t bytes = shards[0].elements() * ElementBytes(parameters.dtype);
    LOCKSTEP_RETURN_IF_ERROR(
        communicator_.Put(kSpreading, [&](ncclComm_t comm, cudaStream_t stream) {
          return device_.api().AllGather(parameters.at(shards[rank_].begin), parameters.data,
                                         static_cast<std::size_t>(bytes), ncclUint8, comm, stream);
        }));
    traffic_.sent_bytes += bytes;
    traffic_.received_bytes += bytes * (world_size_ - 1);
  } else {
    LOCKSTEP_RETURN_IF_ERROR(SpreadParts(parameters, shards));
  }
  return communicator_.AwaitAll(kSpreading);
}

absl::Status OwnerExchange::SpreadParts(const Arena& parameters, std::span<const Shard> parts) {
  return communicator_.PutGroup(kSpreading, [&](ncclComm_t comm, cudaStream_t stream) {
    for (int owner = 0; owner < world_size_; ++owner) {
      const std::int64_t bytes = parts[owner].elements() * ElementBytes(parameters.dtype);
      if (bytes == 0) continue;
      std::byte* const data = parameters.at(parts[owner].begin);
      const ncclResult_t result = device_.api().Broadcast(
          data, data, static_cast<std::size_t>(bytes), ncclUint8, owner, comm, stream);
      if (result != ncclSuccess && result != ncclInProgress) return result;
      (owner == rank_ ? traffic_.sent_bytes : traffic_.received_bytes) += bytes;
    }
    return ncclSuccess;
  });
}

}  // namespace lockstep::nccl_link
