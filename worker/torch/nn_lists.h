// What a torch::nn::Module has registered, where it keeps it.
//
// The public accessors copy: named_buffers() makes every name and list anew, which
// costs many times what it takes to move the buffers of a large model. The lists
// themselves are not public; nn_lists.cc says how they are reached. They are read
// only. Used by one thread.
#ifndef LOCKSTEP_WORKER_TORCH_NN_LISTS_H_
#define LOCKSTEP_WORKER_TORCH_NN_LISTS_H_

#include <memory>
#include <string>

#include "ATen/core/Tensor.h"
#include "torch/ordered_dict.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

using NnTensorList = torch::OrderedDict<std::string, at::Tensor>;
using NnModuleList = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

// Of the module itself, without its children's; undefined tensors are there too.
const NnTensorList& ParametersOf(const torch::nn::Module& module);
const NnTensorList& BuffersOf(const torch::nn::Module& module);
const NnModuleList& ChildrenOf(const torch::nn::Module& module);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_NN_LISTS_H_
