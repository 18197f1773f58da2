#include "tests/bench/resnet_buffers.h"

#include "gtest/gtest.h"
#include "torch/torch.h"

namespace lockstep {
namespace {

TEST(ResnetBuffers, AreThoseOfAResnet50) {
  const auto module = MakeResnetBuffers();
  std::int64_t bytes = 0;
  for (const at::Tensor& buffer : module->buffers()) bytes += buffer.nbytes();
  EXPECT_EQ(module->buffers().size(), kResnetBuffers);
  EXPECT_EQ(bytes, kResnetBufferBytes);
  EXPECT_TRUE(module->named_buffers().contains("layer4.0.downsample.1.running_var"));
}

}  // namespace
}  // namespace lockstep
