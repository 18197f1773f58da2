#include "worker/checkpoint/zip_writer.h"

#include <zlib.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tools/process/child_process.h"
#include "worker/checkpoint/file_system.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::uint64_t Little(const std::string& text, std::size_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) {
    value = value << 8 | static_cast<unsigned char>(text.at(at + static_cast<std::size_t>(i)));
  }
  return value;
}

// With 64-bit fields from `zip64_from` on.
class ZipWriterTest : public testing::TestWithParam<std::uint64_t> {
 protected:
  std::string Path() const { return absl::StrCat(testing::TempDir(), "/", GetParam(), ".zip"); }

  // Records "r/0", "r/1", ... of `texts`; the file's content.
  std::string Write(const std::vector<std::string>& texts) {
    auto file = AtomicFile::Create(HostFileSystem(), Path(), "test");
    LOCKSTEP_EXPECT_OK(file);
    ZipWriter zip(file->get(), GetParam());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      LOCKSTEP_EXPECT_OK(zip.Add(absl::StrCat("r/", i), texts[i]));
    }
    LOCKSTEP_EXPECT_OK(zip.Finish());
    LOCKSTEP_EXPECT_OK((*file)->Commit());
    return *ReadFile(HostFileSystem(), Path(), 1 << 30);
  }
};

TEST_P(ZipWriterTest, UnzipAndPythonAgreeWithWhatWasWritten) {
  Write({"first", "", std::string(100'000, 'x')});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const RunResult unzip,
      RunProgram({.program = "/usr/bin/unzip", .arguments = {"-t", Path()}}, absl::Minutes(1)));
  EXPECT_TRUE(unzip.exit.ok()) << unzip.output;
  EXPECT_THAT(unzip.output, HasSubstr("No errors detected"));
  const std::string script = absl::StrCat(
      "import zipfile; z = zipfile.ZipFile('", Path(), "'); assert z.testzip() is None; "
      "print([(n, len(z.read(n)), z.read(n)[:5]) for n in z.namelist()])");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const RunResult python,
      RunProgram({.program = "/usr/bin/python3", .arguments = {"-c", script}}, absl::Minutes(1)));
  EXPECT_EQ(python.output, "[('r/0', 5, b'first'), ('r/1', 0, b''), ('r/2', 100000, b'xxxxx')]\n");
}

TEST_P(ZipWriterTest, BytesOfRecordsAreAlignedAndInTheLocalHeader) {
  const std::vector<std::string> texts = {"first", "", std::string(70, 'x'), "last"};
  const std::string content = Write(texts);
  std::size_t at = 0;
  for (const std::string& text : texts) {
    ASSERT_EQ(content.substr(at, 4), "PK\3\4");
    const std::size_t data = at + 30 + Little(content, at + 26, 2) + Little(content, at + 28, 2);
    EXPECT_EQ(data % ZipWriter::kAlignment, 0u);
    EXPECT_EQ(content.substr(data, text.size()), text);
    EXPECT_EQ(Little(content, at + 14, 4),
              crc32(0, reinterpret_cast<const Bytef*>(text.data()),
                    static_cast<uInt>(text.size())));
    const std::uint64_t size = text.size() >= GetParam() ? 0xffffffff : text.size();
    EXPECT_EQ(Little(content, at + 22, 4), size);
    at = data + text.size();
  }
  EXPECT_EQ(content.substr(at, 4), "PK\1\2");
}

TEST_P(ZipWriterTest, MoreRecordsThan16BitsCount) {
  const std::string content = Write(std::vector<std::string>(65'536, "x"));
  // The end of the directory says to look for the count in zip64's, before its locator.
  const std::size_t end = content.size() - 22;
  EXPECT_EQ(Little(content, end + 10, 2), 0xffffu);
  ASSERT_EQ(content.substr(end - 20 - 56, 4), "PK\6\6");
  EXPECT_EQ(Little(content, end - 20 - 56 + 32, 8), 65'536u);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const RunResult python,
      RunProgram({.program = "/usr/bin/python3",
                  .arguments = {"-c", absl::StrCat("import zipfile; print(len(zipfile.ZipFile('",
                                                   Path(), "').namelist()))")}},
                 absl::Minutes(1)));
  EXPECT_EQ(python.output, "65536\n");
}

INSTANTIATE_TEST_SUITE_P(Zip64From, ZipWriterTest,
                         testing::Values(ZipWriter::kZip64From, 1000, 0));

}  // namespace
}  // namespace lockstep
