#include "worker/engine/syncing.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

// The root's tensors hold what they should already and are not written.
absl::Status WriteBackUnlessRoot(TensorAccess& access, int root, const Transport& transport) {
  return transport.rank() == root ? absl::OkStatus() : access.WriteBack();
}

template <typename Real>
void AppendAsDoubles(const TensorView& view, std::vector<double>& to) {
  for (std::int64_t i = 0; i < view.spec.elements(); ++i) {
    Real value;
    std::memcpy(&value, view.data + i * sizeof(Real), sizeof(Real));
    to.push_back(std::isnan(value) ? std::numeric_limits<double>::infinity() : value);
  }
}

// Copies of buffers that MIN and MAX can work on, with the names of the buffers.
struct DoubleCopies {
  std::vector<TensorSpec> specs;
  std::vector<std::vector<double>> values;

  std::vector<TensorView> views() {
    std::vector<TensorView> views;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      views.push_back({specs[i], reinterpret_cast<std::byte*>(values[i].data())});
    }
    return views;
  }
};

DoubleCopies CopyFloatBuffers(std::span<const TensorView> buffers) {
  DoubleCopies copies;
  for (const TensorView& buffer : buffers) {
    std::vector<double> values;
    if (buffer.spec.dtype == DType::kFloat32) {
      AppendAsDoubles<float>(buffer, values);
    } else if (buffer.spec.dtype == DType::kFloat64) {
      AppendAsDoubles<double>(buffer, values);
    } else {
      continue;
    }
    copies.specs.push_back({buffer.spec.name, DType::kFloat64, buffer.spec.shape});
    copies.values.push_back(std::move(values));
  }
  return copies;
}

}  // namespace

absl::StatusOr<std::int64_t> BroadcastBuffersFrom(int root, const BufferSelector& selector,
                                                  Model* model, Transport* transport) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<TensorAccess> access,
      model->Buffers([&](absl::string_view name) { return selector.Selects(name); }));
  LOCKSTEP_RETURN_IF_ERROR(transport->Broadcast(access->views(), root));
  LOCKSTEP_RETURN_IF_ERROR(WriteBackUnlessRoot(*access, root, *transport));
  std::int64_t bytes = 0;
  for (const TensorView& view : access->views()) bytes += view.bytes();
  return bytes;
}

absl::Status BroadcastParametersFrom(int root, const Arena& parameters, Model* model,
                                     Transport* transport) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<TensorAccess> frozen, model->FrozenParameters());
  std::vector<TensorView> views;
  // One memory needs no copy; the call still makes all wait for the root.
  if (!parameters.shared) {
    views.push_back({{.name = "(all trainable parameters)",
                      .dtype = DType::kFloat32,
                      .shape = {static_cast<std::int64_t>(parameters.values.size())}},
                     reinterpret_cast<std::byte*>(parameters.values.data())});
  }
  views.insert(views.end(), frozen->views().begin(), frozen->views().end());
  LOCKSTEP_RETURN_IF_ERROR(transport->Broadcast(views, root));
  return WriteBackUnlessRoot(*frozen, root, *transport);
}

absl::StatusOr<BufferDrift> MeasureDrift(Model* model, Transport* transport) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<TensorAccess> access,
                            model->Buffers([](absl::string_view) { return true; }));
  DoubleCopies low = CopyFloatBuffers(access->views());
  DoubleCopies high = low;
  LOCKSTEP_RETURN_IF_ERROR(transport->AllReduce(low.views(), ReduceOp::kMin));
  LOCKSTEP_RETURN_IF_ERROR(transport->AllReduce(high.views(), ReduceOp::kMax));
  BufferDrift drift;
  for (std::size_t buffer = 0; buffer < low.values.size(); ++buffer) {
    for (std::size_t i = 0; i < low.values[buffer].size(); ++i) {
      const double least = low.values[buffer][i];
      const double most = high.values[buffer][i];
      // Equal infinities have no difference, though they have no finite one.
      if (least == most || most - least <= drift.largest) continue;
      drift = {.largest = most - least, .buffer = low.specs[buffer].name};
    }
  }
  return drift;
}

}  // namespace lockstep
