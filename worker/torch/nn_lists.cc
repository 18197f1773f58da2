#include "worker/torch/nn_lists.h"

#include "torch/nn/module.h"

namespace lockstep {
namespace {

using torch::nn::Module;

// An explicit instantiation may name a member that is private: access is not
// checked there. The instantiation defines the function that hands it out. With a
// LibTorch that has no such member this does not compile.
struct Parameters {
  friend NnTensorList Module::* MemberOf(Parameters);
};
struct Buffers {
  friend NnTensorList Module::* MemberOf(Buffers);
};
struct Children {
  friend NnModuleList Module::* MemberOf(Children);
};
template <typename Which, auto kMember>
struct Open {
  friend decltype(kMember) MemberOf(Which) { return kMember; }
};
template struct Open<Parameters, &Module::parameters_>;
template struct Open<Buffers, &Module::buffers_>;
template struct Open<Children, &Module::children_>;

}  // namespace

const NnTensorList& ParametersOf(const Module& module) { return module.*MemberOf(Parameters()); }

const NnTensorList& BuffersOf(const Module& module) { return module.*MemberOf(Buffers()); }

const NnModuleList& ChildrenOf(const Module& module) { return module.*MemberOf(Children()); }

}  // namespace lockstep
