#include "worker/checkpoint/pickle_writer.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/little_endian.h"

namespace lockstep {
namespace {

// Opcodes, by the names of Python's pickletools.
constexpr char kProto[] = "\x80\x02";
constexpr char kStop = '.';
constexpr char kMark = '(';
constexpr char kNone = 'N';
constexpr char kNewTrue = '\x88';
constexpr char kNewFalse = '\x89';
constexpr char kBinInt = 'J';
constexpr char kLong1 = '\x8a';
constexpr char kBinFloat = 'G';
constexpr char kBinUnicode = 'X';
constexpr char kEmptyDict = '}';
constexpr char kSetItems = 'u';
constexpr char kEmptyList = ']';
constexpr char kAppends = 'e';
constexpr char kTuple = 't';
constexpr char kGlobal = 'c';
constexpr char kReduce = 'R';
constexpr char kBinPersId = 'Q';

// The class of storages that torch.save names for a type; empty: it has none, and tensors of it
// lie in untyped storages.
absl::string_view StorageOf(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "BoolStorage";
    case DType::kInt8: return "CharStorage";
    case DType::kInt16: return "ShortStorage";
    case DType::kInt32: return "IntStorage";
    case DType::kInt64: return "LongStorage";
    case DType::kUint8: return "ByteStorage";
    case DType::kFloat16: return "HalfStorage";
    case DType::kBfloat16: return "BFloat16Storage";
    case DType::kFloat32: return "FloatStorage";
    case DType::kFloat64: return "DoubleStorage";
    case DType::kComplex64: return "ComplexFloatStorage";
    case DType::kComplex128: return "ComplexDoubleStorage";
    default: return "";
  }
}

std::vector<std::int64_t> ContiguousStrides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    // Of an empty tensor, where strides do not count but may not overflow.
    if (__builtin_mul_overflow(stride, std::max<std::int64_t>(shape[i], 1), &stride)) stride = 1;
  }
  return strides;
}

}  // namespace

PickleWriter::PickleWriter() : text_(kProto) {}

void PickleWriter::None() { text_.push_back(kNone); }

void PickleWriter::Bool(bool value) { text_.push_back(value ? kNewTrue : kNewFalse); }

void PickleWriter::Int(std::int64_t value) {
  if (value == static_cast<std::int32_t>(value)) {
    text_.push_back(kBinInt);
    AppendLittleEndian(static_cast<std::uint64_t>(value), 4, &text_);
    return;
  }
  text_.push_back(kLong1);
  text_.push_back(8);  // bytes, two's complement
  AppendLittleEndian(static_cast<std::uint64_t>(value), 8, &text_);
}

void PickleWriter::Float(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  text_.push_back(kBinFloat);
  for (int i = 7; i >= 0; --i) text_.push_back(static_cast<char>(bits >> (8 * i) & 0xff));
}

void PickleWriter::Text(absl::string_view utf8) {
  text_.push_back(kBinUnicode);
  AppendLittleEndian(utf8.size(), 4, &text_);
  text_.append(utf8.data(), utf8.size());
}

void PickleWriter::BeginDict() {
  text_.push_back(kEmptyDict);
  text_.push_back(kMark);
}
void PickleWriter::EndDict() { text_.push_back(kSetItems); }

void PickleWriter::BeginList() {
  text_.push_back(kEmptyList);
  text_.push_back(kMark);
}
void PickleWriter::EndList() { text_.push_back(kAppends); }

void PickleWriter::BeginTuple() { text_.push_back(kMark); }
void PickleWriter::EndTuple() { text_.push_back(kTuple); }

void PickleWriter::Global(absl::string_view module, absl::string_view name) {
  text_.push_back(kGlobal);
  absl::StrAppend(&text_, module, "\n", name, "\n");
}

void PickleWriter::Tensor(const TensorSpec& spec, std::int64_t record) {
  const absl::string_view storage = StorageOf(spec.dtype);
  const bool is_typed = !storage.empty();
  const auto numbers = [this](const std::vector<std::int64_t>& values) {
    BeginTuple();
    for (const std::int64_t value : values) Int(value);
    EndTuple();
  };
  Global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  BeginTuple();
  BeginTuple();
  Text("storage");
  is_typed ? Global("torch", storage) : Global("torch.storage", "UntypedStorage");
  Text(absl::StrCat(record));
  Text("cpu");
  Int(is_typed ? spec.elements() : spec.bytes());
  EndTuple();
  text_.push_back(kBinPersId);
  Int(0);  // offset
  numbers(spec.shape);
  numbers(ContiguousStrides(spec.shape));
  Bool(false);  // requires_grad
  Global("collections", "OrderedDict");  // backward hooks
  numbers({});
  text_.push_back(kReduce);
  if (!is_typed) Global("torch", DTypeName(spec.dtype));
  EndTuple();
  text_.push_back(kReduce);
}

std::string PickleWriter::Finish() && {
  text_.push_back(kStop);
  return std::move(text_);
}

}  // namespace lockstep
