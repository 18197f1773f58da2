#include "tests/chaos/faults.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(FaultDeck, BringsEachFaultOnceBeforeAnyComesAgain) {
  Prng prng(3);
  FaultDeck deck(&prng);
  std::set<std::vector<Fault>> orders;
  for (int round = 0; round < 3; ++round) {
    std::vector<Fault> order;
    for (std::size_t i = 0; i < kFaults.size(); ++i) order.push_back(deck.Next());
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), kFaults.size());
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST(FaultDeck, EqualSeedsGiveEqualOrders) {
  Prng first_prng(5), second_prng(5);
  FaultDeck first(&first_prng), second(&second_prng);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(first.Next(), second.Next());
}

}  // namespace
}  // namespace lockstep
