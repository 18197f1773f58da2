#include "worker/transport/nccl/version_exchange.h"

#include "common/base/status_macros.h"

namespace lockstep::nccl_link {

absl::StatusOr<std::unique_ptr<VersionExchange>> VersionExchange::Create(
    Device* device, Communicator* communicator, Staging* staging, Traffic* traffic,
    DeviceMath* math, int rank, int world_size) {
  std::unique_ptr<VersionExchange> exchange(
      new VersionExchange(device, communicator, staging, traffic, math, rank, world_size));
  for (Event& event : exchange->received_) {
    LOCKSTEP_ASSIGN_OR_RETURN(event, Event::Create(&device->api()));
  }
  for (Event& event : exchange->free_) {
    LOCKSTEP_ASSIGN_OR_RETURN(event, Event::Create(&device->api()));
  }
  LOCKSTEP_RETURN_IF_ERROR(math->UseStream(device->arithmetic()));
  return exchange;
}

absl::StatusOr<std::byte*> VersionExchange::Begin(std::int64_t part_bytes,
                                                  std::int64_t more_bytes) {
  // Rounded up, so that all versions are aligned.
  version_bytes_ = (part_bytes + 15) / 16 * 16;
  const std::int64_t versions_bytes = kSets * (world_size_ - 1) * version_bytes_;
  LOCKSTEP_ASSIGN_OR_RETURN(versions_, staging_.OnDevice(versions_bytes + more_bytes));
  return versions_ + versions_bytes;
}

std::byte* VersionExchange::Version(std::int64_t round, int from) const {
  const std::int64_t slot = round % kSets * (world_size_ - 1) + (from < rank_ ? from : from - 1);
  return versions_ + slot * version_bytes_;
}

absl::Status VersionExchange::Send(std::int64_t round, std::span<const Part> parts,
                                   std::span<const float> weights) {
  if (round >= kSets) {
    LOCKSTEP_RETURN_IF_ERROR(free_[(round - kSets) % kMaxUnderWay].HoldBack(device_.moves()));
  }
  const auto post = [&](ncclComm_t comm, cudaStream_t stream) {
    for (int i = 1; i < world_size_; ++i) {
      // Each pair once, and not all to one owner first.
      const int to = (rank_ + i) % world_size_;
      const int from = (rank_ + world_size_ - i) % world_size_;
      if (weights[rank_] != 0 && parts[to].bytes() > 0) {
        const ncclResult_t sent = device_.api().Send(
            parts[to].data(), static_cast<std::size_t>(parts[to].bytes()), ncclUint8, to, comm,
            stream);
        if (sent != ncclSuccess && sent != ncclInProgress) return sent;
        traffic_.sent_bytes += parts[to].bytes();
      }
      if (weights[from] != 0 && parts[rank_].bytes() > 0) {
        const ncclResult_t received = device_.api().Recv(
            Version(round, from), static_cast<std::size_t>(parts[rank_].bytes()), ncclUint8, from,
            comm, stream);
        if (received != ncclSuccess && received != ncclInProgress) return received;
        traffic_.received_bytes += parts[rank_].bytes();
      }
    }
    return ncclSuccess;
  };
  if (world_size_ > 1) LOCKSTEP_RETURN_IF_ERROR(communicator_.PutGroup(kReduction, post));
  return received_[round % kSets].Record(device_.moves());
}

absl::Status VersionExchange::AddUp(std::int64_t round, const Part& mine,
                                    std::span<const float> weights, float* sums) {
  const Event& received = received_[round % kSets];
  LOCKSTEP_RETURN_IF_ERROR(math_.on_stream() ? received.HoldBack(device_.arithmetic())
                                             : communicator_.Await(kReduction, received));
  if (mine.bytes() == 0) return absl::OkStatus();
  std::vector<const std::byte*> versions;
  for (int r = 0; r < world_size_; ++r) {
    versions.push_back(r == rank_ ? mine.data() : Version(round, r));
  }
  return math_.WeightedSum(mine.gradients.dtype, versions, weights, mine.elements.elements(),
                           sums);
}

absl::Status VersionExchange::Free(std::int64_t round) {
  return free_[round % kMaxUnderWay].Record(device_.arithmetic());
}

absl::Status VersionExchange::AwaitTurn(std::int64_t round) {
  if (round < kMaxUnderWay) return absl::OkStatus();
  return communicator_.Await(kReduction, free_[round % kMaxUnderWay]);
}

}  // namespace lockstep::nccl_link
