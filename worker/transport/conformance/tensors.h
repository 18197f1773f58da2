// What conformance tests move: tensors that own their memory, and shards.
//
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_TENSORS_H_
#define LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/manifest/reduction.h"
#include "common/sharding/shard_plan.h"
#include "worker/combine/naive_reduce.h"
#include "worker/transport/tensor_view.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Several times what a transport moves in one message. Sanitizers are slow.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kLarge = 1'200'003;
#else
inline constexpr int kLarge = 5'000'003;
#endif

// Each with a guard behind it that must not change.
class Tensors {
 public:
  Tensors() = default;
  Tensors(Tensors&&) = default;  // the views stay valid
  Tensors& operator=(Tensors&&) = default;

  // The bytes are drawn from `seed`.
  void Add(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
           std::uint64_t seed);
  // The elements are those of FillHard().
  void AddHard(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
               std::uint64_t seed);

  template <typename T>
  std::span<T> values(int index) {
    return {reinterpret_cast<T*>(storage_[index].data()),
            static_cast<std::size_t>(views_[index].spec.elements())};
  }

  std::span<const TensorView> views() const { return views_; }
  // All bytes, guards included.
  const std::vector<Bytes>& bytes() const { return storage_; }

 private:
  // Zeroed but for the guard; the memory of the new view.
  std::span<std::byte> AddEmpty(const std::string& name, DType dtype,
                                std::vector<std::int64_t> shape);

  std::vector<Bytes> storage_;
  std::vector<TensorView> views_;
};

Tensors OneOfEachDType(std::uint64_t seed);

// What an all-reduce must make of the ranks' tensors, guards included.
std::vector<Bytes> ExpectedOf(ReduceOp op, const std::vector<double>& weights,
                              const std::vector<const Tensors*>& ranks);

// Values with a wide range of magnitudes, so that the order of a sum shows.
void FillFloats(std::span<float> values, std::uint64_t seed);

// Of elements of any type that IsTrainable(), as FillFloats() makes them.
void FillArena(const Arena& arena, std::uint64_t seed);
std::vector<float> ValuesOf(const Arena& arena);
// Rounds to the arena's type.
void Store(const Arena& arena, std::int64_t element, float value);

// One float 1 for each rank.
std::vector<float> EqualWeights(int world_size);
// What a transport hands sums to: nobody, or that shard of a float32 arena.
void Ignore(std::int64_t begin, std::span<const float> sums);
ConsumeSums IntoArena(const Arena& arena, const Shard& shard);

std::vector<Shard> EvenShards(std::int64_t elements, int world_size);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_TENSORS_H_
