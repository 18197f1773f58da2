#include "worker/transport/shm/segment.h"

#include <unistd.h>

#include <cerrno>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/memory/huge_pages.h"

namespace lockstep::shm {
namespace {

TEST(Segment, IsSeenByWhoOpensItAndGrowsForBoth) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Segment mine, Segment::Create(PageAligned(1)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Segment theirs, Segment::Open(getpid(), mine.fd()));
  const std::int64_t first = PageAligned(1);
  LOCKSTEP_ASSERT_OK(mine.Grow(3 * first));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Mapping a, mine.Map(first, 2 * first));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Mapping b, theirs.Map(first, 2 * first));
  EXPECT_EQ(b.data()[7], std::byte{0});
  a.data()[7] = std::byte{42};
  EXPECT_EQ(b.data()[7], std::byte{42});
  EXPECT_THAT(theirs.Size(), IsOk());
  EXPECT_EQ(*theirs.Size(), 3 * first);
}

TEST(Segment, CannotBeShrunkUnderAPeer) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Segment segment, Segment::Create(PageAligned(1)));
  EXPECT_EQ(ftruncate(segment.fd(), 0), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(Segment, RefusesToGrowBeyondTheMemoryThatIsThere) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Segment segment, Segment::Create(PageAligned(1)));
  EXPECT_THAT(segment.Grow(std::int64_t{1} << 44), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(*segment.Size(), PageAligned(1));
}

TEST(Segment, SaysWhatToDoWhereItCannotBeOpened) {
  EXPECT_THAT(Segment::Open(getpid(), 100'000),
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("one host")));
}

}  // namespace
}  // namespace lockstep::shm
