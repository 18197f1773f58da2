#include "worker/transport/gloo/gloo_transport.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/combine/combine.h"
#include "worker/memory/host_memory.h"
#include "worker/transport/begun_reduction.h"
#include "worker/transport/checked_transport.h"
#include "worker/transport/gloo/early_reduction.h"
#include "worker/transport/gloo/inbox.h"
#include "worker/transport/gloo/links.h"
#include "worker/transport/gloo/messages.h"
#include "worker/transport/gloo/pipeline.h"
#include "worker/transport/gloo/relay.h"
#include "worker/transport/gloo/rendezvous.h"
#include "worker/transport/pieces.h"

namespace lockstep {
namespace {

using gloo_links::EarlyReduction;
using gloo_links::Links;
using gloo_links::Messages;
using gloo_links::Piece;
using gloo_links::Pipeline;
using gloo_links::Rounds;

constexpr std::int32_t kRecordTag = Links::kMaxTag - 1;
constexpr std::int32_t kPassageTag = Links::kMaxTag - 2;
constexpr std::int64_t kPassageMessageBytes = 256 << 20;

// Gloo writes to connections whose peer may have been killed. The signal for that
// ends the process, unless it is ignored or handled: then the write fails.
void KeepBrokenPipesFromKilling() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

class GlooTransport final : public CheckedTransport {
 public:
  GlooTransport(const Group& group, std::int64_t bucket_bytes, std::unique_ptr<Links> links)
      : CheckedTransport(group),
        bucket_bytes_(bucket_bytes),
        inbox_(rank(), world_size()),
        early_(&inbox_, rank(), world_size(), bucket_bytes),
        links_(std::move(links)),
        pipeline_(links_.get(), &inbox_, rank(), world_size()) {}

  ~GlooTransport() override {
    if (!reduces_.joinable()) return;
    Interrupt(absl::AbortedError(
        absl::StrCat(MemberText(group().members, rank()), " left epoch ", group().epoch.value(),
                     " while gradients were under way")));
    reduces_.join();
  }

  // The ranks compare what they were given.
  absl::Status CompareOptions() {
    StartDeadline();
    std::vector<std::int64_t> sizes(world_size());
    LOCKSTEP_RETURN_IF_ERROR(ExchangeRecords(bucket_bytes_, std::span(sizes)));
    if (std::ranges::all_of(sizes, [&](std::int64_t size) { return size == sizes[0]; })) {
      return absl::OkStatus();
    }
    std::vector<std::string> views;
    for (int r = 0; r < world_size(); ++r) {
      views.push_back(absl::StrCat(sizes[r], " on ", MemberText(group().members, r)));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("ranks disagree on the bytes of a bucket: ", ListNames(views),
                     "; give all workers the same"));
  }

  TrafficCounters traffic() const override {
    const std::int64_t records = record_bytes_;
    const TrafficCounters all = links_->traffic();
    return {.sent_bytes = all.sent_bytes - records, .received_bytes = all.received_bytes - records};
  }

  void GradientsReady(const Arena& gradients, std::int64_t begin, std::int64_t end) override {
    early_.MarkReady(gradients, begin, end);
  }

  void DropReduction() override { early_.begun().Drop(); }

 private:
  // Each rank's `mine`, by rank, in `all`.
  template <typename Record>
  absl::Status ExchangeRecords(const Record& mine, std::span<Record> all) {
    std::vector<Links::Ticket> tickets;
    for (int i = 1; i < world_size(); ++i) {
      const int from = (rank() + world_size() - i) % world_size();
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Links::Ticket ticket,
          links_->Receive(from, kRecordTag, reinterpret_cast<std::byte*>(&all[from]),
                          sizeof(Record)));
      tickets.push_back(ticket);
    }
    all[rank()] = mine;
    for (int i = 1; i < world_size(); ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Links::Ticket ticket,
          links_->Send((rank() + i) % world_size(), kRecordTag,
                       reinterpret_cast<const std::byte*>(&all[rank()]), sizeof(Record)));
      tickets.push_back(ticket);
    }
    for (const Links::Ticket ticket : tickets) {
      LOCKSTEP_RETURN_IF_ERROR(links_->Await(ticket, deadline()));
    }
    record_bytes_ += (world_size() - 1) * static_cast<std::int64_t>(sizeof(Record));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Call>> ExchangeCalls(const Call& mine) override {
    std::vector<Call> calls(world_size());
    LOCKSTEP_RETURN_IF_ERROR(ExchangeRecords(mine, std::span(calls)));
    return calls;
  }

  absl::Status MoveBroadcast(std::span<const TensorView> views, int root) override {
    Messages messages(views, bucket_bytes_);
    return gloo_links::Relay(*links_, rank(), world_size(), root, messages, deadline());
  }

  absl::Status MovePassages(std::span<const Passage> passages) override {
    std::vector<Links::Ticket> tickets;
    for (const Passage& passage : passages) {
      const TensorView& view = passage.view;
      for (std::int64_t at = 0; at < view.bytes(); at += kPassageMessageBytes) {
        const std::int64_t bytes = std::min(kPassageMessageBytes, view.bytes() - at);
        if (passage.from == rank()) {
          LOCKSTEP_ASSIGN_OR_RETURN(
              const Links::Ticket ticket,
              links_->Send(passage.to, kPassageTag, view.data + at, bytes));
          tickets.push_back(ticket);
        } else if (passage.to == rank()) {
          LOCKSTEP_ASSIGN_OR_RETURN(
              const Links::Ticket ticket,
              links_->Receive(passage.from, kPassageTag, view.data + at, bytes));
          tickets.push_back(ticket);
        }
      }
    }
    for (const Links::Ticket ticket : tickets) {
      LOCKSTEP_RETURN_IF_ERROR(links_->Await(ticket, deadline()));
    }
    return absl::OkStatus();
  }

  // Every message is cut among all ranks: each reduces its part and sends it to all.
  absl::Status MoveAllReduce(std::span<const TensorView> views, ReduceOp op,
                             std::span<const double> weights) override {
    Messages messages(views, bucket_bytes_);
    const auto cut = [&](std::int64_t message, int owner) {
      const std::int64_t lines = (messages.bytes(message) + 15) / 16;
      return std::min(lines * owner / world_size() * 16, messages.bytes(message));
    };
    const Rounds rounds = {
        .count = messages.count(),
        .version_bytes = bucket_bytes_,
        .combines = true,
        .spreads = true,
        .piece = [&](std::int64_t round, int owner) -> Piece {
          std::byte* data = messages.data(round) + cut(round, owner);
          const std::int64_t bytes = cut(round, owner + 1) - cut(round, owner);
          return {data, bytes, data, bytes};
        },
        .begin = [&](std::int64_t round) { messages.Pack(round); },
        .combine =
            [&](std::int64_t round, std::span<const std::byte* const> versions) {
              std::byte* mine = messages.data(round) + cut(round, rank());
              std::vector<Fragment> fragments =
                  Clip(messages.fragments(round), cut(round, rank()), cut(round, rank() + 1));
              // The result goes where the message lies.
              for (Fragment& f : fragments) f.data = mine + f.offset;
              ReducePieces(fragments, op, weights, versions);
            },
        .end = [&](std::int64_t round) { messages.Unpack(round); }};
    return pipeline_.Run(rounds, deadline());
  }

  absl::StatusOr<Arena> MakeArena(int index, ArenaUse use, DType dtype,
                                  std::int64_t elements) override {
    LOCKSTEP_ASSIGN_OR_RETURN(HostMemory memory,
                              HostMemory::Allocate(elements * ElementBytes(dtype)));
    arenas_.push_back({.dtype = dtype, .data = memory.data(), .elements = elements});
    memory_.push_back(std::move(memory));
    return arenas_.back();
  }

  absl::Status MoveToOwners(int gradients, std::span<const Shard> shards,
                            std::span<const float> weights,
                            const ConsumeSums& consume) override {
    if (early_.begun().Has(gradients)) {
      const std::span<const float> sums = early_.begun().UseUp(gradients);
      if (!sums.empty()) consume(0, sums);
      return absl::OkStatus();
    }
    return MoveBuckets(&arenas_[gradients], nullptr, shards,
                       SumUp(arenas_[gradients], weights, consume));
  }

  absl::Status MoveFromOwners(const Arena& arena, std::span<const Shard> shards) override {
    if (world_size() == 1) return absl::OkStatus();
    return MoveBuckets(nullptr, &arena, shards, nullptr);
  }

  absl::Status MoveUpdates(int gradients, const Arena& parameters, std::span<const Shard> shards,
                           std::span<const float> weights, const ConsumeSums& update) override {
    if (early_.begun().Has(gradients)) {
      const std::span<const float> sums = early_.begun().UseUp(gradients);
      return MoveBuckets(nullptr, &parameters, shards, [&](const Shard& part, Versions) {
        update(part.begin, sums.subspan(part.begin, part.elements()));
      });
    }
    return MoveBuckets(&arenas_[gradients], &parameters, shards,
                       SumUp(arenas_[gradients], weights, update));
  }

  using Versions = std::span<const std::byte* const>;
  // Makes what is spread of a bucket of this rank's shard, which the part counts in.
  using Combine = std::function<void(const Shard& part, Versions versions)>;

  static Combine SumUp(const Arena& gradients, std::span<const float> weights,
                       const ConsumeSums& consume) {
    return [&gradients, weights, &consume](const Shard& part, Versions versions) {
      WeightedSum(gradients.dtype, versions, weights, part.elements(),
                  [&](std::int64_t offset, std::span<const float> sums) {
                    consume(part.begin + offset, sums);
                  });
    };
  }

  // Each shard in buckets: their gradients to the owner, what it made of them to all, or
  // one of both.
  absl::Status MoveBuckets(const Arena* gradients, const Arena* parameters,
                           std::span<const Shard> shards, const Combine& combine) {
    std::int64_t element_bytes = 0;
    for (const Arena* arena : {gradients, parameters}) {
      if (arena == nullptr) continue;
      element_bytes = std::max<std::int64_t>(element_bytes, ElementBytes(arena->dtype));
    }
    const std::int64_t bucket = bucket_bytes_ / element_bytes;
    std::int64_t longest = 0;
    for (const Shard& shard : shards) longest = std::max(longest, shard.elements());
    const auto slice = [&](std::int64_t round, int owner) -> Shard {
      const Shard& shard = shards[owner];
      return {std::min(shard.begin + round * bucket, shard.end),
              std::min(shard.begin + (round + 1) * bucket, shard.end)};
    };
    const Rounds rounds = {
        .count = (longest + bucket - 1) / bucket,
        .version_bytes = bucket_bytes_,
        .combines = gradients != nullptr,
        .spreads = parameters != nullptr,
        .piece = [&](std::int64_t round, int owner) -> Piece {
          const Shard part = slice(round, owner);
          Piece piece;
          if (gradients != nullptr) {
            piece.version = gradients->at(part.begin);
            piece.version_bytes = part.elements() * ElementBytes(gradients->dtype);
          }
          if (parameters != nullptr) {
            piece.part = parameters->at(part.begin);
            piece.part_bytes = part.elements() * ElementBytes(parameters->dtype);
          }
          return piece;
        },
        .combine = [&](std::int64_t round, Versions versions) {
          if (combine == nullptr) return;
          const Shard part = slice(round, rank());
          const std::int64_t begin = shards[rank()].begin;
          combine({part.begin - begin, part.end - begin}, versions);
        }};
    return pipeline_.Run(rounds, deadline());
  }

  absl::Status StartReduction(std::vector<BegunPart> parts, float weight) override {
    if (reduces_.joinable() || early_.begun().has_parts()) {
      return absl::FailedPreconditionError(
          "another reduction was begun and neither used up nor dropped");
    }
    if (world_size() == 1) return absl::OkStatus();
    std::vector<BegunReduction::Part> begun;
    for (const BegunPart& part : parts) {
      begun.push_back(
          {.arena = part.arena, .gradients = arenas_[part.arena], .shards = part.shards});
    }
    early_.Begin(links_.get(), std::move(begun));
    links_->GoAway();
    reduces_ = std::thread([this, parts = std::move(parts), weight] {
      reduced_ = ReduceBegun(parts, weight, [this](std::vector<float> weights) {
        return early_.Run(std::move(weights));
      });
    });
    return absl::OkStatus();
  }

  absl::Status JoinReduction() override {
    if (!reduces_.joinable()) return absl::OkStatus();
    absl::Status status = Fail(early_.CheckAllReady());
    links_->ComeBack(RealClock().Now() + group().deadline);
    reduces_.join();
    links_->TakeBack();
    if (status.ok()) status = reduced_;
    return status;
  }

  absl::Status CheckBegun(int gradients, std::span<const Shard> shards,
                          std::span<const float> weights) const override {
    return early_.begun().CheckEnd(gradients, shards, weights);
  }

  void Interrupt(const absl::Status& why) override {
    early_.Stop(why);
    links_->Interrupt(why);
  }

  const std::int64_t bucket_bytes_;
  // Memory that messages may still be under way from goes after the links.
  std::vector<Arena> arenas_;
  std::vector<HostMemory> memory_;  // by arena
  gloo_links::Inbox inbox_;
  EarlyReduction early_;
  const std::unique_ptr<Links> links_;
  Pipeline pipeline_;
  std::atomic<std::int64_t> record_bytes_ = 0;  // each way
  // The communication thread, from StartReduction() to JoinReduction().
  std::thread reduces_;
  absl::Status reduced_;  // what came of it
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> GlooFactory::Create(const Group& group,
                                                               const ExchangeEndpoint& exchange) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(group));
  if (!IsBucketSize(options_.bucket_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("buckets of ", options_.bucket_bytes, " bytes; they must have ",
                     kMinBucketBytes, " to ", kMaxBucketBytes, ", a multiple of 16"));
  }
  KeepBrokenPipesFromKilling();
  LOCKSTEP_ASSIGN_OR_RETURN(c10::intrusive_ptr<c10d::Store> store,
                            gloo_links::OpenStore(group, options_.interface, exchange));
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Links> links,
                            Links::Form(std::move(store), group, options_.interface));
  auto transport =
      std::make_unique<GlooTransport>(group, options_.bucket_bytes, std::move(links));
  LOCKSTEP_RETURN_IF_ERROR(transport->CompareOptions());
  return transport;
}

}  // namespace lockstep
