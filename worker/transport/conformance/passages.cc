#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "worker/transport/conformance/conformance.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using Bytes = std::vector<std::byte>;

// What passage number `i` carries.
Bytes Content(std::size_t i, std::int64_t bytes) {
  Prng prng(i + 1);
  Bytes content(bytes);
  for (std::byte& each : content) each = static_cast<std::byte>(prng.Next());
  return content;
}

struct Planned {
  int from = 0;
  int to = 0;
  std::int64_t bytes = 0;
};

// Between any two ranks, of sizes around those that transports cut at.
std::vector<Planned> SomePassages(int world_size, std::uint64_t seed) {
  constexpr std::int64_t kSizes[] = {0, 1, 3, 4096, (64 << 10) - 1, 64 << 10, 200'001, 3 << 20};
  Prng prng(seed);
  std::vector<Planned> planned;
  for (int i = 0; i < 12; ++i) {
    const int from = static_cast<int>(prng.Below(world_size));
    const int to = (from + 1 + static_cast<int>(prng.Below(world_size - 1))) % world_size;
    planned.push_back({from, to, kSizes[prng.Below(std::size(kSizes))]});
  }
  return planned;
}

Passage PassageOf(const Planned& planned, std::size_t i, Bytes* memory) {
  return {.from = planned.from,
          .to = planned.to,
          .view = {.spec = {.name = absl::StrCat("state ", i),
                            .dtype = DType::kUint8,
                            .shape = {planned.bytes}},
                   .data = memory == nullptr ? nullptr : memory->data()}};
}

TEST_P(TransportConformance, PassagesArriveAndNothingElseIsTouched) {
  if (world_size() == 1) GTEST_SKIP() << "there is nobody to pass anything to";
  RunRanks([&](int rank, Transport& transport) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const std::vector<Planned> planned = SomePassages(world_size(), seed);
      std::vector<Bytes> memory(planned.size());
      std::vector<Passage> passages;
      for (std::size_t i = 0; i < planned.size(); ++i) {
        const bool takes_part = planned[i].from == rank || planned[i].to == rank;
        if (planned[i].from == rank) memory[i] = Content(i, planned[i].bytes);
        if (planned[i].to == rank) memory[i].resize(planned[i].bytes);
        passages.push_back(PassageOf(planned[i], i, takes_part ? &memory[i] : nullptr));
      }
      LOCKSTEP_ASSERT_OK(transport.Pass(passages));
      for (std::size_t i = 0; i < planned.size(); ++i) {
        if (planned[i].from != rank && planned[i].to != rank) continue;
        EXPECT_TRUE(memory[i] == Content(i, planned[i].bytes)) << "passage " << i;
      }
      // Other operations go on behind it.
      int value = rank == 0 ? 7 : 0;
      const TensorView view = {{.name = "value", .dtype = DType::kInt32},
                               reinterpret_cast<std::byte*>(&value)};
      LOCKSTEP_ASSERT_OK(transport.Broadcast({&view, 1}, 0));
      EXPECT_EQ(value, 7);
    }
  });
}

TEST_P(TransportConformance, WithoutPassagesRanksOnlyMeet) {
  RunRanks([&](int rank, Transport& transport) {
    LOCKSTEP_EXPECT_OK(transport.Pass({}));
    LOCKSTEP_EXPECT_OK(transport.Agree({}).status());
  });
}

TEST_P(TransportConformance, PassagesThatRanksSeeDifferentlyAreNamedAndNotMade) {
  if (world_size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  std::vector<Bytes> memory(world_size(), Bytes(100));
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                Bytes& mine = memory[rank];
                const Passage passage =
                    PassageOf({.from = 0, .to = 1, .bytes = rank == 1 ? 100 : 96}, 3, &mine);
                return transport.Pass({&passage, 1});
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            AllOf(HasSubstr("state 3"), HasSubstr("uint8[96]"),
                                  HasSubstr("uint8[100]"), HasSubstr("w1 (rank 1)")))));
  EXPECT_THAT(memory, Each(Each(std::byte{0})));
}

TEST_P(TransportConformance, APassageToNobodyIsAnError) {
  Bytes memory(8);
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                const Passage passage =
                    PassageOf({.from = 0, .to = world_size(), .bytes = 8}, 1, &memory);
                return transport.Pass({&passage, 1});
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("state 1"))));
}

}  // namespace
}  // namespace lockstep
