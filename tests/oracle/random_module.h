// RandomModule: the replicas of a module that nobody would write, drawn from a
// seed: buffers of all types, shapes and strides, some under two names.
//
// Replicas differ in the values of buffers and in how they lie in memory. What is
// read and written here goes by memory and strides, not by operations of LibTorch.
// Used by one thread; each replica may be given to a thread of its own meanwhile.
#ifndef LOCKSTEP_TESTS_ORACLE_RANDOM_MODULE_H_
#define LOCKSTEP_TESTS_ORACLE_RANDOM_MODULE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "common/base/prng.h"
#include "common/manifest/manifest.h"
#include "tests/oracle/naive_policy.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

// The values of `tensor`, in the order of its indices, if its storage began at
// `storage`.
Bytes ReadValues(const at::Tensor& tensor, const std::byte* storage);
void WriteValues(const at::Tensor& tensor, const Bytes& values, std::byte* storage);

struct NamedBuffer {
  std::string name;
  at::Tensor tensor;
};

class RandomModule {
 public:
  RandomModule(Prng& prng, int world_size);

  int world_size() const { return static_cast<int>(replicas_.size()); }
  torch::nn::Module& replica(int rank) { return *replicas_[rank]; }
  // The one parameter, trainable and equal on all ranks.
  at::Tensor weight(int rank) const;
  // As the module lists them now.
  std::vector<NamedBuffer> Buffers(int rank) const;

  NaiveBuffers Values() const;
  Manifest BufferManifest() const;

  // Writes other values to some buffers of some ranks.
  void Mutate(Prng& prng);
  // Puts another tensor in the place of a buffer, on all ranks, if there is one
  // that can be replaced. Returns its name, or "nothing".
  std::string Reassign(Prng& prng);

 private:
  struct Buffer {
    std::string name;
    DType dtype = DType::kUnspecified;
    std::vector<std::int64_t> shape;
    // By dimension: whether its elements are all alike, so that a rank may have it
    // expanded.
    std::vector<bool> is_repeated;
    // Whether a rank may have it with its sign (or that of its imaginary part)
    // turned by a view. No such buffer has NaN: turning one loses bits.
    bool may_turn = false;
    std::vector<at::Tensor> by_rank;
    // By rank: where the module holds it; null if that is not known for good.
    std::vector<at::Tensor*> registered;
  };

  static void DrawType(Prng& prng, std::uint64_t pool, Buffer& buffer);
  static void DrawShape(Prng& prng, Buffer& buffer);
  static Bytes DrawValues(Prng& prng, const Buffer& buffer);
  static at::Tensor DrawTensor(Prng& prng, const Buffer& buffer);

  std::vector<std::shared_ptr<torch::nn::Module>> replicas_;
  std::vector<Buffer> buffers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_ORACLE_RANDOM_MODULE_H_
