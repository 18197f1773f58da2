#include "tests/parity/peers/inputs.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace lockstep {

absl::StatusOr<Inputs> ReadInputs(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string header;
  if (!std::getline(file, header)) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  const std::string values(std::istreambuf_iterator<char>(file), {});
  const nlohmann::json tensors = nlohmann::json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!tensors.is_object()) return absl::DataLossError(absl::StrCat(path, " has no header"));
  Inputs inputs;
  for (const auto& [name, place] : tensors.items()) {
    const at::Tensor tensor = at::empty(place.at("shape").get<std::vector<std::int64_t>>());
    const auto offset = place.at("offset").get<std::size_t>();
    if (offset + tensor.nbytes() > values.size()) {
      return absl::DataLossError(absl::StrCat(path, " ends before tensor '", name, "' does"));
    }
    std::memcpy(tensor.mutable_data_ptr(), values.data() + offset, tensor.nbytes());
    inputs.emplace(name, tensor);
  }
  return inputs;
}

}  // namespace lockstep
