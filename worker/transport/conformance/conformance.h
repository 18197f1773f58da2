// The conformance suite of transports: what each implementation must do, run on
// ranks as threads. Instantiate it in the implementation's own test:
//
//   INSTANTIATE_TEST_SUITE_P(Shm, TransportConformance, AllWorldSizes({...}),
//                            ConformanceCaseName);
#ifndef LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_CONFORMANCE_H_
#define LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_CONFORMANCE_H_

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker/transport/transport.h"

namespace lockstep {

struct ConformanceCase {
  std::function<std::shared_ptr<TransportFactory>()> make_factory;
  int world_size = 1;
};

void PrintTo(const ConformanceCase& c, std::ostream* out);

// The case for 1, 2, 3 and 4 ranks.
testing::internal::ParamGenerator<ConformanceCase> AllWorldSizes(const ConformanceCase& c);

std::string ConformanceCaseName(const testing::TestParamInfo<ConformanceCase>& info);

// Names "w0", "w1", ...
std::vector<std::string> MemberNames(int world_size);

class TransportConformance : public testing::TestWithParam<ConformanceCase> {
 protected:
  int world_size() const { return GetParam().world_size; }

  // Forms a transport for each rank and runs `body` on each in its own thread.
  void RunRanks(const std::function<void(int rank, Transport& transport)>& body,
                absl::Duration deadline = absl::Seconds(30));

  // The statuses that `body` returned, by rank.
  std::vector<absl::Status> Gather(
      const std::function<absl::Status(int rank, Transport& transport)>& body,
      absl::Duration deadline = absl::Seconds(30));
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_CONFORMANCE_H_
