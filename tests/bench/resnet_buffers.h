// A module with the buffers of a ResNet-50 and one small parameter.
#ifndef LOCKSTEP_TESTS_BENCH_RESNET_BUFFERS_H_
#define LOCKSTEP_TESTS_BENCH_RESNET_BUFFERS_H_

#include <cstdint>
#include <memory>

namespace torch::nn {
class Module;
}

namespace lockstep {

// Of its 53 BatchNorm layers, under their usual names.
inline constexpr int kResnetBuffers = 159;
inline constexpr std::int64_t kResnetBufferBytes = 212904;

std::shared_ptr<torch::nn::Module> MakeResnetBuffers();

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_RESNET_BUFFERS_H_
