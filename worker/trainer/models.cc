#include "worker/trainer/models.h"

#include <cstdint>

#include "ATen/ops/relu.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;

nn::Conv2d Conv3x3(std::int64_t from, std::int64_t to, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(from, to, 3).stride(stride).padding(1).bias(false));
}

struct ResidualBlockImpl : nn::Module {
  ResidualBlockImpl(std::int64_t from, std::int64_t to, std::int64_t stride) {
    register_module("conv1", conv1 = Conv3x3(from, to, stride));
    register_module("bn1", bn1 = nn::BatchNorm2d(to));
    register_module("conv2", conv2 = Conv3x3(to, to, 1));
    register_module("bn2", bn2 = nn::BatchNorm2d(to));
    if (stride == 1 && from == to) return;
    register_module("shortcut", shortcut = nn::Sequential(
                                    nn::Conv2d(nn::Conv2dOptions(from, to, 1).stride(stride).bias(
                                        false)),
                                    nn::BatchNorm2d(to)));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = at::relu(bn1->forward(conv1->forward(x)));
    const at::Tensor inner = bn2->forward(conv2->forward(hidden));
    return at::relu(inner + (shortcut ? shortcut->forward(x) : x));
  }

  nn::Conv2d conv1 = nullptr;
  nn::BatchNorm2d bn1 = nullptr;
  nn::Conv2d conv2 = nullptr;
  nn::BatchNorm2d bn2 = nullptr;
  nn::Sequential shortcut = nullptr;
};
TORCH_MODULE(ResidualBlock);

}  // namespace

nn::Sequential ConvNet() {
  nn::Sequential net;
  net->push_back("conv1", Conv3x3(1, 16, 1));
  net->push_back("bn1", nn::BatchNorm2d(16));
  net->push_back("relu1", nn::ReLU());
  net->push_back("pool1", nn::MaxPool2d(2));
  net->push_back("conv2", Conv3x3(16, 32, 1));
  net->push_back("bn2", nn::BatchNorm2d(32));
  net->push_back("relu2", nn::ReLU());
  net->push_back("pool2", nn::MaxPool2d(2));
  net->push_back("conv3", Conv3x3(32, 64, 1));
  net->push_back("bn3", nn::BatchNorm2d(64));
  net->push_back("relu3", nn::ReLU());
  net->push_back("pool3", nn::MaxPool2d(2));
  net->push_back("flatten", nn::Flatten());
  net->push_back("fc", nn::Linear(64 * 3 * 3, 10));
  return net;
}

nn::Sequential ResNet() {
  nn::Sequential net;
  net->push_back("conv", Conv3x3(1, 16, 1));
  net->push_back("bn", nn::BatchNorm2d(16));
  net->push_back("relu", nn::ReLU());
  net->push_back("layer1_0", ResidualBlock(16, 16, 1));
  net->push_back("layer1_1", ResidualBlock(16, 16, 1));
  net->push_back("layer2_0", ResidualBlock(16, 32, 2));
  net->push_back("layer2_1", ResidualBlock(32, 32, 1));
  net->push_back("layer3_0", ResidualBlock(32, 64, 2));
  net->push_back("layer3_1", ResidualBlock(64, 64, 1));
  net->push_back("pool", nn::AdaptiveAvgPool2d(1));
  net->push_back("flatten", nn::Flatten());
  net->push_back("fc", nn::Linear(64, 10));
  return net;
}

nn::Sequential Mlp() {
  nn::Sequential net;
  net->push_back("flatten", nn::Flatten());
  net->push_back("fc1", nn::Linear(28 * 28, 256));
  net->push_back("bn1", nn::BatchNorm1d(256));
  net->push_back("relu1", nn::ReLU());
  net->push_back("fc2", nn::Linear(256, 128));
  net->push_back("bn2", nn::BatchNorm1d(128));
  net->push_back("relu2", nn::ReLU());
  net->push_back("fc3", nn::Linear(128, 10));
  return net;
}

}  // namespace lockstep
