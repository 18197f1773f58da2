#include "worker/checkpoint/zip_writer.h"

#include <zlib.h>

#include "common/base/status_macros.h"
#include "worker/checkpoint/little_endian.h"

namespace lockstep {
namespace {

// PKWARE's APPNOTE.TXT 6.3: 4.3.7 local file header, 4.3.12 central directory header, 4.3.14 and
// 4.3.15 zip64's end of the central directory and its locator, 4.3.16 end of central directory,
// 4.5.3 zip64 extra field.
constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kDirectoryHeader = 0x02014b50;
constexpr std::uint32_t kZip64DirectoryEnd = 0x06064b50;
constexpr std::uint32_t kZip64Locator = 0x07064b50;
constexpr std::uint32_t kDirectoryEnd = 0x06054b50;
constexpr std::uint16_t kZip64Extra = 0x0001;
constexpr std::uint16_t kPaddingExtra = 0x4246;  // "FB", as PyTorch pads
constexpr std::int64_t kLocalHeaderBytes = 30;
constexpr std::int64_t kExtraHeaderBytes = 4;
constexpr std::uint64_t kZip64EndBytes = 56;
constexpr std::uint16_t kVersion = 45;  // which knows zip64
// 1980-01-01, the first day that the format knows: equal content gives equal files.
constexpr std::uint16_t kDay = 1 << 5 | 1;
constexpr std::uint32_t kIn64 = 0xffffffff;
constexpr std::uint64_t kMostRecords = 0xffff;

class Fields {
 public:
  Fields& U16(std::uint64_t value) { return Little(value, 2); }
  Fields& U32(std::uint64_t value) { return Little(value, 4); }
  Fields& U64(std::uint64_t value) { return Little(value, 8); }
  Fields& Text(absl::string_view text) {
    text_.append(text.data(), text.size());
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  Fields& Little(std::uint64_t value, int bytes) {
    AppendLittleEndian(value, bytes, &text_);
    return *this;
  }
  std::string text_;
};

}  // namespace

absl::Status ZipWriter::Add(absl::string_view name, std::span<const std::byte> bytes) {
  const Record record = {
      .name = std::string(name),
      .bytes = bytes.size(),
      .offset = static_cast<std::uint64_t>(file_->bytes()),
      .crc = static_cast<std::uint32_t>(
          crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()))};
  const bool is_large = record.bytes >= zip64_from_;
  Fields extra;
  if (is_large) extra.U16(kZip64Extra).U16(16).U64(record.bytes).U64(record.bytes);
  const std::int64_t unpadded = file_->bytes() + kLocalHeaderBytes +
                                static_cast<std::int64_t>(name.size() + extra.text().size()) +
                                kExtraHeaderBytes;
  const std::int64_t padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  extra.U16(kPaddingExtra).U16(padding).Text(std::string(padding, 'Z'));
  const std::uint64_t size = is_large ? kIn64 : record.bytes;
  LOCKSTEP_RETURN_IF_ERROR(file_->Append(Fields()
                                             .U32(kLocalHeader)
                                             .U16(kVersion)
                                             .U16(0)  // flags
                                             .U16(0)  // stored
                                             .U16(0)  // time
                                             .U16(kDay)
                                             .U32(record.crc)
                                             .U32(size)
                                             .U32(size)
                                             .U16(name.size())
                                             .U16(extra.text().size())
                                             .Text(name)
                                             .Text(extra.text())
                                             .text()));
  LOCKSTEP_RETURN_IF_ERROR(file_->Append(bytes));
  records_.push_back(record);
  return absl::OkStatus();
}

absl::Status ZipWriter::Add(absl::string_view name, absl::string_view text) {
  return Add(name, std::as_bytes(std::span(text.data(), text.size())));
}

std::string ZipWriter::DirectoryEntry(const Record& record) const {
  const bool is_large = record.bytes >= zip64_from_;
  const bool is_far = record.offset >= zip64_from_;
  Fields large;
  if (is_large) large.U64(record.bytes).U64(record.bytes);
  if (is_far) large.U64(record.offset);
  Fields extra;
  if (is_large || is_far) {
    extra.U16(kZip64Extra).U16(large.text().size()).Text(large.text());
  }
  const std::uint64_t size = is_large ? kIn64 : record.bytes;
  return Fields()
      .U32(kDirectoryHeader)
      .U16(kVersion)  // made by
      .U16(kVersion)  // needed
      .U16(0)         // flags
      .U16(0)         // stored
      .U16(0)         // time
      .U16(kDay)
      .U32(record.crc)
      .U32(size)
      .U32(size)
      .U16(record.name.size())
      .U16(extra.text().size())
      .U16(0)  // comment
      .U16(0)  // disk
      .U16(0)  // attributes
      .U32(0)
      .U32(is_far ? kIn64 : record.offset)
      .Text(record.name)
      .Text(extra.text())
      .text();
}

absl::Status ZipWriter::Finish() {
  const auto begin = static_cast<std::uint64_t>(file_->bytes());
  for (const Record& record : records_) {
    LOCKSTEP_RETURN_IF_ERROR(file_->Append(DirectoryEntry(record)));
  }
  const auto end = static_cast<std::uint64_t>(file_->bytes());
  const std::uint64_t count = records_.size();
  const bool is_large = end >= zip64_from_ || count >= kMostRecords;
  Fields fields;
  if (is_large) {
    fields.U32(kZip64DirectoryEnd)
        .U64(kZip64EndBytes - 12)  // what follows
        .U16(kVersion)
        .U16(kVersion)
        .U32(0)  // disk
        .U32(0)
        .U64(count)
        .U64(count)
        .U64(end - begin)
        .U64(begin);
    fields.U32(kZip64Locator).U32(0).U64(end).U32(1);
  }
  const std::uint64_t counted = is_large ? kMostRecords : count;
  fields.U32(kDirectoryEnd)
      .U16(0)  // disk
      .U16(0)
      .U16(counted)
      .U16(counted)
      .U32(is_large ? kIn64 : end - begin)
      .U32(is_large ? kIn64 : begin)
      .U16(0);  // comment
  return file_->Append(fields.text());
}

}  // namespace lockstep
