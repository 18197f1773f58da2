#include "worker/checkpoint/safetensors.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/checkpoint/json_object.h"
#include "worker/checkpoint/little_endian.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr char kMetadata[] = "__metadata__";

struct Named {
  DType dtype;
  absl::string_view name;
};
constexpr Named kNames[] = {
    {DType::kBool, "BOOL"},        {DType::kUint8, "U8"},
    {DType::kInt8, "I8"},          {DType::kFloat8E5m2, "F8_E5M2"},
    {DType::kFloat8E4m3fn, "F8_E4M3"}, {DType::kFloat8E8m0fnu, "F8_E8M0"},
    {DType::kInt16, "I16"},        {DType::kUint16, "U16"},
    {DType::kFloat16, "F16"},      {DType::kBfloat16, "BF16"},
    {DType::kInt32, "I32"},        {DType::kUint32, "U32"},
    {DType::kFloat32, "F32"},      {DType::kComplex64, "C64"},
    {DType::kFloat64, "F64"},      {DType::kInt64, "I64"},
    {DType::kUint64, "U64"},
};

std::optional<DType> TypeOf(absl::string_view name) {
  for (const Named& row : kNames) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

absl::Status CheckWritable(const TensorSpec& tensor) {
  const std::string what = absl::StrCat("tensor ", Quoted(tensor.name));
  if (SafetensorsName(tensor.dtype).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", tensor.ToString(), "; safetensors files cannot hold the type ",
                     DTypeName(tensor.dtype), ", so convert it or leave it out"));
  }
  if (tensor.name == kMetadata || WellFormedPrefix(tensor.name) != tensor.name.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has a name that safetensors files cannot hold; expected UTF-8 other "
                           "than ",
                     kMetadata));
  }
  const bool negative = std::ranges::any_of(tensor.shape, [](std::int64_t d) { return d < 0; });
  if (negative || tensor.shape.size() > kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", tensor.ToString(), "; expected ",
                                                   kMaxDimensions,
                                                   " dimensions at most, none negative"));
  }
  return absl::OkStatus();
}

absl::Status Wrong(absl::string_view name, absl::string_view why) {
  return absl::DataLossError(absl::StrCat("tensor ", Quoted(name), " ", why));
}

absl::StatusOr<SafetensorsEntry> ReadEntry(const std::string& name, const json& value,
                                           std::int64_t data_begin, std::int64_t data_bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(const JsonObject object,
                            JsonObject::Of(value, absl::StrCat("tensor ", Quoted(name))));
  std::string type;
  LOCKSTEP_RETURN_IF_ERROR(object.Read("dtype", &type));
  const std::optional<DType> dtype = TypeOf(type);
  if (!dtype) return Wrong(name, absl::StrCat("has the unknown type ", Quoted(type)));
  SafetensorsEntry entry = {.tensor = {.name = name, .dtype = *dtype}};
  LOCKSTEP_ASSIGN_OR_RETURN(const json* shape, object.Array("shape"));
  if (shape->size() > kMaxDimensions) {
    return Wrong(name, absl::StrCat("has ", shape->size(), " dimensions; expected at most ",
                                    kMaxDimensions));
  }
  for (const json& dimension : *shape) {
    std::int64_t size = 0;
    if (!ReadInteger(dimension, &size) || size < 0) {
      return Wrong(name, "has a dimension that is no integer from 0 to 2^63 - 1");
    }
    entry.tensor.shape.push_back(size);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const json* offsets, object.Array("data_offsets"));
  std::int64_t begin = 0;
  std::int64_t end = 0;
  if (offsets->size() != 2 || !ReadInteger((*offsets)[0], &begin) ||
      !ReadInteger((*offsets)[1], &end) || begin < 0 || end < begin || end > data_bytes) {
    return Wrong(name, absl::StrCat("has wrong data_offsets; expected two in order, from 0 to ",
                                    data_bytes));
  }
  if (end - begin != entry.tensor.bytes()) {
    return Wrong(name, absl::StrCat("is ", entry.tensor.ToString(), " with ", end - begin,
                                    " bytes; expected ", entry.tensor.bytes()));
  }
  entry.begin = data_begin + begin;
  return entry;
}

absl::StatusOr<SafetensorsMetadata> ReadMetadata(const json& value) {
  if (!value.is_object()) return absl::DataLossError("the metadata is no object; expected one");
  SafetensorsMetadata metadata;
  for (const auto& [name, text] : value.items()) {
    if (!text.is_string()) {
      return absl::DataLossError(
          absl::StrCat("the metadata's ", Quoted(name), " is no text; expected one"));
    }
    metadata.emplace(name, text.get<std::string>());
  }
  return metadata;
}

}  // namespace

absl::string_view SafetensorsName(DType dtype) {
  for (const Named& row : kNames) {
    if (row.dtype == dtype) return row.name;
  }
  return "";
}

absl::StatusOr<SafetensorsLayout> LayOutSafetensors(const SafetensorsMetadata& metadata,
                                                    const std::vector<TensorSpec>& tensors) {
  json header = json::object();
  SafetensorsLayout layout;
  for (const TensorSpec& tensor : tensors) LOCKSTEP_RETURN_IF_ERROR(CheckWritable(tensor));
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  std::ranges::stable_sort(layout.order, std::ranges::greater(), [&](std::size_t i) {
    return ElementBytes(tensors[i].dtype);
  });
  std::int64_t begin = 0;
  for (const std::size_t i : layout.order) {
    const TensorSpec& tensor = tensors[i];
    std::int64_t end = 0;
    if (__builtin_add_overflow(begin, tensor.bytes(), &end)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the tensors up to ", Quoted(tensor.name), " (", tensor.ToString(),
                       ") have more bytes than fit into 63 bits"));
    }
    const json entry = {{"dtype", std::string(SafetensorsName(tensor.dtype))},
                        {"shape", tensor.shape},
                        {"data_offsets", {begin, end}}};
    const bool is_new = header.emplace(tensor.name, entry).second;
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat("two tensors have the name ", Quoted(tensor.name), "; expected one"));
    }
    begin = end;
  }
  for (const auto& [name, text] : metadata) {
    if (WellFormedPrefix(name) != name.size() || WellFormedPrefix(text) != text.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the metadata's ", Quoted(name), " is not UTF-8; expected that"));
    }
  }
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (static_cast<std::int64_t>(text.size()) > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header of ", tensors.size(), " tensors has ", text.size(),
                     " bytes; safetensors allows ", kMaxSafetensorsHeaderBytes));
  }
  AppendLittleEndian(text.size(), kSafetensorsPrefixBytes, &layout.head);
  layout.head += text;
  return layout;
}

const SafetensorsEntry* SafetensorsHeader::Find(absl::string_view name) const {
  const auto at = std::ranges::find_if(
      entries, [&](const SafetensorsEntry& entry) { return entry.tensor.name == name; });
  return at == entries.end() ? nullptr : &*at;
}

absl::StatusOr<std::int64_t> SafetensorsHeadBytes(absl::string_view prefix,
                                                  std::int64_t file_bytes) {
  if (prefix.size() != kSafetensorsPrefixBytes || file_bytes < kSafetensorsPrefixBytes) {
    return absl::DataLossError(absl::StrCat("it has ", file_bytes, " bytes; expected at least ",
                                            kSafetensorsPrefixBytes));
  }
  std::uint64_t bytes = 0;
  for (int i = kSafetensorsPrefixBytes - 1; i >= 0; --i) {
    bytes = bytes << 8 | static_cast<unsigned char>(prefix[i]);
  }
  const std::int64_t most =
      std::min(kMaxSafetensorsHeaderBytes, file_bytes - kSafetensorsPrefixBytes);
  if (bytes > static_cast<std::uint64_t>(most)) {
    return absl::DataLossError(absl::StrCat("its header has ", bytes,
                                            " bytes; expected at most ", most));
  }
  return kSafetensorsPrefixBytes + static_cast<std::int64_t>(bytes);
}

absl::StatusOr<SafetensorsHeader> ParseSafetensors(absl::string_view head,
                                                   std::int64_t file_bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::int64_t data_begin,
      SafetensorsHeadBytes(head.substr(0, kSafetensorsPrefixBytes), file_bytes));
  if (static_cast<std::int64_t>(head.size()) != data_begin) {
    return absl::DataLossError(absl::StrCat("its head has ", head.size(), " bytes; expected ",
                                            data_begin));
  }
  const absl::string_view text = head.substr(kSafetensorsPrefixBytes);
  if (text.empty() || text.front() != '{') {
    return absl::DataLossError("its header does not begin with '{'; expected that");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const json parsed, ParseJson(text));
  SafetensorsHeader header;
  for (const auto& [name, value] : parsed.items()) {
    if (name == kMetadata) {
      LOCKSTEP_ASSIGN_OR_RETURN(header.metadata, ReadMetadata(value));
      continue;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(SafetensorsEntry entry,
                              ReadEntry(name, value, data_begin, file_bytes - data_begin));
    header.entries.push_back(std::move(entry));
  }
  std::ranges::sort(header.entries, {}, [](const SafetensorsEntry& entry) {
    return std::tuple(entry.begin, entry.tensor.bytes());
  });
  std::int64_t end = data_begin;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != end) {
      return Wrong(entry.tensor.name,
                   absl::StrCat("begins at byte ", entry.begin, " of the file; expected ", end,
                                ", where the one before ends"));
    }
    end += entry.tensor.bytes();
  }
  if (end != file_bytes) {
    return absl::DataLossError(absl::StrCat("its tensors end at byte ", end, ", the file at ",
                                            file_bytes, "; expected the same"));
  }
  return header;
}

}  // namespace lockstep
