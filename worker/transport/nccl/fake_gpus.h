// FakeGpus: the NCCL transport on the fake of NCCL and CUDA, one device for each rank.
//
// The memory of its devices is the host's, so tests read and write arenas directly.
// Thread-safe.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_GPUS_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_GPUS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/device/host_math.h"
#include "worker/transport/conformance/conformance.h"
#include "worker/transport/nccl/fake/fake_nccl.h"
#include "worker/transport/nccl/nccl_transport.h"

namespace lockstep {

// Several in a shard of the larger tests.
inline constexpr std::int64_t kTestPieceBytes = 1 << 18;

class FakeGpus final : public TransportFactory {
 public:
  using Change = std::function<void(int rank, NcclOptions& options)>;

  // `change`: what is different in a rank's options.
  explicit FakeGpus(Change change = nullptr, FakeNccl::Options options = {})
      : fake_(options), change_(std::move(change)) {}
  // All transports are gone: no rule was broken, and nothing is left.
  ~FakeGpus() override {
    EXPECT_THAT(fake_.TakeViolations(), testing::IsEmpty());
    if (may_leak_) return;
    EXPECT_THAT(fake_.Leaks(), testing::IsEmpty());
  }

  FakeNccl& fake() { return fake_; }
  // Of a test in which a device is given up.
  void MayLeak() { may_leak_ = true; }

  std::string name() const override { return "nccl on fakes"; }
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override {
    NcclOptions options = {.api = FakeNccl::Api(),
                           .device = group.rank,
                           .math = std::make_shared<HostMath>(),
                           .piece_bytes = kTestPieceBytes,
                           .end_process = [](absl::string_view message) {
                             ADD_FAILURE() << message;
                           }};
    if (change_ != nullptr) change_(group.rank, options);
    return NcclFactory(options).Create(group, exchange);
  }

 private:
  FakeNccl fake_;
  const Change change_;
  bool may_leak_ = false;
};

// What NcclOptions::end_process was told.
class Ends {
 public:
  void Add(absl::string_view message) {
    MutexLock lock(&mu_);
    messages_.emplace_back(message);
  }
  std::vector<std::string> messages() {
    MutexLock lock(&mu_);
    return messages_;
  }

 private:
  Mutex mu_;
  std::vector<std::string> messages_ ABSL_GUARDED_BY(mu_);
};

template <typename T>
bool AllAre(std::span<const T> values, std::type_identity_t<T> value) {
  return std::ranges::all_of(values, [&](T each) { return each == value; });
}

// Forms a transport for each rank and runs `body` on each in its own thread; by rank, what
// `body` returned or why the rank did not form.
inline std::vector<absl::Status> RunOnGpus(
    FakeGpus& gpus, int world_size,
    const std::function<absl::Status(int rank, Transport& transport)>& body,
    absl::Duration deadline = absl::Seconds(30)) {
  std::promise<std::string> promise;
  const std::shared_future<std::string> endpoint = promise.get_future().share();
  std::vector<absl::Status> statuses(world_size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      auto transport = gpus.Create(
          {.epoch = Epoch(4), .rank = rank, .members = MemberNames(world_size),
           .deadline = deadline},
          [&](const std::optional<std::string>& mine) -> absl::StatusOr<std::string> {
            if (mine.has_value()) promise.set_value(*mine);
            return endpoint.get();
          });
      statuses[rank] = transport.ok() ? body(rank, **transport) : transport.status();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return statuses;
}

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_GPUS_H_
