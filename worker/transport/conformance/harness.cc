#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_matchers.h"
#include "worker/transport/conformance/conformance.h"

namespace lockstep {
namespace {

// Hands rank 0's endpoint to the threads of a test, as the coordinator would.
class EndpointBoard {
 public:
  absl::StatusOr<std::string> Exchange(const std::optional<std::string>& mine) {
    MutexLock lock(&mu_);
    if (mine.has_value()) {
      endpoint_ = mine;
      changed_.SignalAll();
    }
    if (!changed_.AwaitFor(&mu_, absl::Seconds(30), [&] { return endpoint_.has_value(); })) {
      return absl::DeadlineExceededError("rank 0 gave no endpoint");
    }
    return *endpoint_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<std::string> endpoint_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

void PrintTo(const ConformanceCase& c, std::ostream* out) { *out << c.world_size << " ranks"; }

testing::internal::ParamGenerator<ConformanceCase> AllWorldSizes(const ConformanceCase& c) {
  std::vector<ConformanceCase> cases;
  for (int world_size = 1; world_size <= 4; ++world_size) {
    cases.push_back(c);
    cases.back().world_size = world_size;
  }
  return testing::ValuesIn(cases);
}

std::string ConformanceCaseName(const testing::TestParamInfo<ConformanceCase>& info) {
  return absl::StrCat(info.param.world_size, "Ranks");
}

std::vector<std::string> MemberNames(int world_size) {
  std::vector<std::string> names;
  for (int rank = 0; rank < world_size; ++rank) names.push_back(absl::StrCat("w", rank));
  return names;
}

void TransportConformance::RunRanks(
    const std::function<void(int rank, Transport& transport)>& body, absl::Duration deadline) {
  const std::shared_ptr<TransportFactory> factory = GetParam().make_factory();
  EndpointBoard board;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      const Group group = {.epoch = Epoch(3),
                           .rank = rank,
                           .members = MemberNames(world_size()),
                           .deadline = deadline};
      absl::StatusOr<std::unique_ptr<Transport>> transport = factory->Create(
          group,
          [&](const std::optional<std::string>& mine) { return board.Exchange(mine); });
      ASSERT_THAT(transport, IsOk()) << "rank " << rank;
      body(rank, **transport);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<absl::Status> TransportConformance::Gather(
    const std::function<absl::Status(int rank, Transport& transport)>& body,
    absl::Duration deadline) {
  std::vector<absl::Status> statuses(world_size(), absl::UnknownError("the rank did not form"));
  RunRanks([&](int rank, Transport& transport) { statuses[rank] = body(rank, transport); },
           deadline);
  return statuses;
}

}  // namespace lockstep
