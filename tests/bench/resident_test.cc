#include "tests/bench/resident.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(Resident, AFieldIsReadInBytes) {
  const char* text = "VmPeak:\t    9 kB\nVmHWM:\t   12 kB\nVmRSS:\t  7 kB\n";
  EXPECT_EQ(FieldBytes(text, "VmHWM"), 12 * 1024);
  EXPECT_EQ(FieldBytes(text, "VmRSS"), 7 * 1024);
  EXPECT_EQ(FieldBytes(text, "Pss"), -1);
}

TEST(Resident, ThisProcessHoldsSomething) {
  const Resident resident = MeasureResident();
  EXPECT_GT(resident.now_bytes, 0);
  EXPECT_GE(resident.peak_bytes, resident.now_bytes);
}

}  // namespace
}  // namespace lockstep
