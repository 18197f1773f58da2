#include "worker/transport/nccl/owner_exchange.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace lockstep::nccl_link {
namespace {

constexpr absl::string_view kReduction = "sending of gradients to their owners";
constexpr absl::string_view kSpreading = "spreading of parameters from their owners";

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

struct OwnerExchange::Reduction {
  const Arena& gradients;
  std::span<const Shard> shards;
  std::span<const float> weights;
  const ConsumeSums& consume;
  std::int64_t piece_elements = 0;  // of each shard
  std::int64_t pieces = 0;
  std::byte* versions = nullptr;  // kSets times one of each rank
  float* sums = nullptr;          // of one piece

  Shard Part(std::int64_t piece, int owner) const {
    const Shard& shard = shards[owner];
    return {std::min(shard.begin + piece * piece_elements, shard.end),
            std::min(shard.begin + (piece + 1) * piece_elements, shard.end)};
  }
  // Rounded up, so that all versions are aligned.
  std::int64_t version_bytes() const {
    return (piece_elements * ElementBytes(gradients.dtype) + 15) / 16 * 16;
  }
  // This rank's own is read where it lies.
  std::byte* Version(std::int64_t piece, int rank, int from) const {
    if (from == rank) return gradients.at(Part(piece, rank).begin);
    const std::int64_t others = static_cast<std::int64_t>(shards.size()) - 1;
    const std::int64_t slot = piece % kSets * others + (from < rank ? from : from - 1);
    return versions + slot * version_bytes();
  }
};

absl::StatusOr<std::unique_ptr<OwnerExchange>> OwnerExchange::Create(
    Device* device, Communicator* communicator, Staging* staging, TrafficCounters* traffic,
    DeviceMath* math, int rank, int world_size) {
  std::unique_ptr<OwnerExchange> exchange(
      new OwnerExchange(device, communicator, staging, traffic, math, rank, world_size));
  for (Set& set : exchange->sets_) {
    LOCKSTEP_ASSIGN_OR_RETURN(set.received, Event::Create(&device->api()));
    LOCKSTEP_ASSIGN_OR_RETURN(set.used, Event::Create(&device->api()));
  }
  LOCKSTEP_RETURN_IF_ERROR(math->UseStream(device->arithmetic()));
  return exchange;
}

absl::Status OwnerExchange::Reduce(const Arena& gradients, const Arena* parameters,
                                   std::span<const Shard> shards, std::span<const float> weights,
                                   const ConsumeSums& consume) {
  Reduction reduction = {
      .gradients = gradients, .shards = shards, .weights = weights, .consume = consume};
  std::int64_t longest = 0;
  for (const Shard& shard : shards) longest = std::max(longest, shard.elements());
  if (longest == 0) return absl::OkStatus();
  constexpr std::int64_t kSumBytes = sizeof(float);
  reduction.piece_elements =
      std::min({longest, staging_.BytesOf(world_size_ - 1) / ElementBytes(gradients.dtype),
                staging_.piece_bytes() / kSumBytes});
  reduction.pieces = (longest + reduction.piece_elements - 1) / reduction.piece_elements;
  const std::int64_t versions_bytes = kSets * (world_size_ - 1) * reduction.version_bytes();
  LOCKSTEP_ASSIGN_OR_RETURN(
      reduction.versions,
      staging_.OnDevice(versions_bytes + reduction.piece_elements * kSumBytes));
  reduction.sums = reinterpret_cast<float*>(reduction.versions + versions_bytes);

  LOCKSTEP_RETURN_IF_ERROR(Receive(reduction, 0));
  for (std::int64_t piece = 0; piece < reduction.pieces; ++piece) {
    if (piece + 1 < reduction.pieces) LOCKSTEP_RETURN_IF_ERROR(Receive(reduction, piece + 1));
    LOCKSTEP_RETURN_IF_ERROR(AddUp(reduction, piece));
    if (parameters == nullptr || world_size_ == 1) continue;
    std::vector<Shard> parts;
    for (int owner = 0; owner < world_size_; ++owner) {
      parts.push_back(reduction.Part(piece, owner));
    }
    LOCKSTEP_RETURN_IF_ERROR(sets_[piece % kSets].used.HoldBack(device_.moves()));
    LOCKSTEP_RETURN_IF_ERROR(SpreadParts(*parameters, parts));
  }
  return communicator_.AwaitAll(parameters == nullptr ? kReduction : kSpreading);
}

absl::Status OwnerExchange::Receive(const Reduction& reduction, std::int64_t piece) {
  Set& set = sets_[piece % kSets];
  if (piece >= kSets) LOCKSTEP_RETURN_IF_ERROR(set.used.HoldBack(device_.moves()));
  const Arena& gradients = reduction.gradients;
  const auto bytes_to = [&](int owner) {
    return static_cast<std::size_t>(reduction.Part(piece, owner).elements() *
                                    ElementBytes(gradients.dtype));
  };
  const auto counts = [&](int rank) { return reduction.weights[rank] != 0; };
  const auto post = [&](ncclComm_t comm, cudaStream_t stream) {
    for (int i = 1; i < world_size_; ++i) {
      // Each pair once, and not all to one owner first.
      const int to = (rank_ + i) % world_size_;
      const int from = (rank_ + world_size_ - i) % world_size_;
      if (counts(rank_) && bytes_to(to) > 0) {
        const ncclResult_t sent =
            device_.api().Send(gradients.at(reduction.Part(piece, to).begin), bytes_to(to),
                               ncclUint8, to, comm, stream);
        if (sent != ncclSuccess && sent != ncclInProgress) return sent;
        traffic_.sent_bytes += static_cast<std::int64_t>(bytes_to(to));
      }
      if (counts(from) && bytes_to(rank_) > 0) {
        const ncclResult_t received =
            device_.api().Recv(reduction.Version(piece, rank_, from), bytes_to(rank_), ncclUint8,
                               from, comm, stream);
        if (received != ncclSuccess && received != ncclInProgress) return received;
        traffic_.received_bytes += static_cast<std::int64_t>(bytes_to(rank_));
      }
    }
    return ncclSuccess;
  };
  if (world_size_ > 1) LOCKSTEP_RETURN_IF_ERROR(communicator_.PutGroup(kReduction, post));
  return set.received.Record(device_.moves());
}

absl::Status OwnerExchange::AddUp(const Reduction& reduction, std::int64_t piece) {
  Set& set = sets_[piece % kSets];
  // The arithmetic may be the host's.
  LOCKSTEP_RETURN_IF_ERROR(communicator_.Await(kReduction, set.received));
  const Shard part = reduction.Part(piece, rank_);
  if (part.elements() > 0) {
    std::vector<const std::byte*> versions;
    for (int r = 0; r < world_size_; ++r) versions.push_back(reduction.Version(piece, rank_, r));
    LOCKSTEP_RETURN_IF_ERROR(math_.WeightedSum(reduction.gradients.dtype, versions,
                                               reduction.weights, part.elements(),
                                               reduction.sums));
    reduction.consume(part.begin - reduction.shards[rank_].begin,
                      {reduction.sums, static_cast<std::size_t>(part.elements())});
  }
  return set.used.Record(device_.arithmetic());
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
