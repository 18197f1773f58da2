#include "worker/engine/buffer_drift.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/engine/content_reader.h"

namespace lockstep {
namespace {

template <typename Real>
void AppendAsDoubles(std::span<const std::byte> bytes, std::vector<double>& to) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Real)) {
    Real value;
    std::memcpy(&value, bytes.data() + at, sizeof(Real));
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

// `buffers` of float32 and float64.
absl::StatusOr<DoubleCopies> CopyFloatBuffers(std::span<const TensorView> buffers,
                                              DeviceMath* math) {
  DoubleCopies copies;
  ContentReader contents(math);
  for (const TensorView& buffer : buffers) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, contents.Bytes(buffer));
    std::vector<double> values;
    if (buffer.spec.dtype == DType::kFloat32) {
      AppendAsDoubles<float>(bytes, values);
    } else {
      AppendAsDoubles<double>(bytes, values);
    }
    copies.specs.push_back({buffer.spec.name, DType::kFloat64, buffer.spec.shape});
    copies.values.push_back(std::move(values));
  }
  return copies;
}

}  // namespace

absl::StatusOr<BufferDrift> MeasureDrift(const std::function<bool(absl::string_view)>& selects,
                                         Model* model, DeviceMath* math, Transport* transport) {
  // Buffers without plain values can only be looked at in the manifest.
  LOCKSTEP_ASSIGN_OR_RETURN(const Manifest manifest, model->Describe());
  std::set<absl::string_view> measured;
  for (const TensorSpec& buffer : manifest.buffers) {
    if (buffer.dtype != DType::kFloat32 && buffer.dtype != DType::kFloat64) continue;
    if (selects(buffer.name)) measured.insert(buffer.name);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<TensorAccess> access,
      model->Buffers([&](absl::string_view name) { return measured.contains(name); }));
  LOCKSTEP_ASSIGN_OR_RETURN(DoubleCopies low, CopyFloatBuffers(access->views(), math));
  DoubleCopies high = low;
  const std::vector<TensorView> low_views = low.views();
  const std::vector<TensorView> high_views = high.views();
  const Transfer transfers[] = {{.reduce = ReduceOp::kMin, .views = low_views},
                                {.reduce = ReduceOp::kMax, .views = high_views}};
  LOCKSTEP_RETURN_IF_ERROR(transport->Exchange(transfers));
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
