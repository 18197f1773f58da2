#include "tests/bench/channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "common/base/check.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

struct Ends {
  int first;
  int second;
};

Ends MakeEnds() {
  int ends[2];
  LOCKSTEP_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  return {ends[0], ends[1]};
}

void Write(int fd, const std::string& text) {
  LOCKSTEP_CHECK(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

TEST(Channel, MessagesArriveWholeAndInOrder) {
  const Ends ends = MakeEnds();
  Channel a(ends.first);
  Channel b(ends.second);
  const std::string longer(100000, 'x');
  ASSERT_THAT(a.Send({{"run", "step"}}), IsOk());
  ASSERT_THAT(a.Send({{"text", longer}}), IsOk());
  EXPECT_EQ((*b.Receive(absl::Seconds(10)))["run"], "step");
  EXPECT_EQ((*b.Receive(absl::Seconds(10)))["text"], longer);
}

TEST(Channel, AGoneSideIsAnErrorAtOnce) {
  const Ends ends = MakeEnds();
  Channel a(ends.first);
  close(ends.second);
  EXPECT_THAT(a.Receive(absl::Seconds(10)).status(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(a.Send({{"run", "step"}}), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(Channel, AWaitEndsAtItsDeadline) {
  const Ends ends = MakeEnds();
  Channel a(ends.first);
  Channel b(ends.second);
  Write(ends.second, "{\"half\":");
  EXPECT_THAT(a.Receive(absl::Milliseconds(1)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(Channel, ALineThatIsNoObjectIsRefused) {
  const Ends ends = MakeEnds();
  Channel a(ends.first);
  Channel b(ends.second);
  Write(ends.second, "nonsense\n");
  EXPECT_THAT(a.Receive(absl::Seconds(10)).status(), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace lockstep
