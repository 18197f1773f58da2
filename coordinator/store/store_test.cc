#include "coordinator/store/store.h"

#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status_matchers.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/record_codec.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/tail_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::vector<Record> OneOfEachKind() {
  JobSpec spec;
  spec.name = "mnist";
  spec.min_workers = 2;
  spec.max_workers = 4;
  spec.workers = {"w0", "w1", "w2", "w3"};
  spec.join_window = absl::Milliseconds(1500);
  spec.lease = absl::Seconds(7);
  spec.ready_timeout = absl::Seconds(30);
  spec.optimizer_replicas = 2;
  spec.stall_timeout = absl::Seconds(90);
  spec.policy.ignore_list = {"bn.*"};
  spec.policy.root = RootWorker{"w1"};
  SyncPolicy policy;
  policy.broadcast_buffers = false;
  policy.schedule.every_steps = 3;
  Manifest manifest;
  manifest.parameters = {{{"fc.weight", DType::kFloat32, {10, 8}}, true}};
  manifest.buffers = {{"bn.running_mean", DType::kFloat32, {8}}};
  manifest.optimizer = "SGD(lr=0.1)";
  const absl::Time time = absl::FromUnixNanos(1'700'000'000'123'456'789);
  return {
      GenerationStarted{Generation(3)},
      JobCreated{spec, time},
      JobDeleted{"old"},
      ManifestAgreed{"mnist", manifest},
      EpochProposed{"mnist", Epoch(5), {{"w0", Incarnation(11)}, {"w1", Incarnation(12)}}},
      EpochStarted{"mnist", Epoch(5)},
      MemberLeft{"mnist", Epoch(5), "w0"},
      EpochEnded{"mnist", Epoch(5), "worker 'w1' was silent"},
      EntryAppended{"mnist", {LogNumber(1), PolicyRevised{Revision(2), policy}}, "ann", "drift",
                    time},
      EntryAppended{"mnist", {LogNumber(2), SyncOnce{true, true, RootRank{1}}}, "", "", time},
      EntryAppended{"mnist", {LogNumber(3), SyncOnce{true, false}}, "", "", time},
      EntryAppended{"mnist", {LogNumber(4), Regroup{"w1"}}, "", "", time},
      EntryAppended{"mnist", {LogNumber(5), CheckpointOnce{}}, "", "", time},
      EntryApplied{"mnist", LogNumber(1), "w0", 42},
  };
}

std::string FreshPath() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / test->name();
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder / "store.db";
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What a kill, or a copy for a backup, leaves of a store; without the write-ahead log if
// there is none.
std::string CopyOf(const std::string& path) {
  const std::string copy = path + ".left";
  for (const char* suffix : {"", "-wal", "-shm", ".tail"}) {
    std::filesystem::remove(copy + suffix);
    const bool is_there = std::filesystem::exists(path + suffix);
    if (is_there && suffix != std::string("-shm")) {
      std::filesystem::copy_file(path + suffix, copy + suffix);
    }
  }
  return copy;
}

// What Load() gives, or why it, or the store, cannot be opened.
absl::StatusOr<std::vector<Record>> LoadFrom(const std::string& path) {
  absl::StatusOr<std::unique_ptr<Store>> store = OpenSqliteStore(path);
  if (!store.ok()) return store.status();
  return (*store)->Load();
}

// A closed store with these records.
void Fill(const std::string& path, const std::vector<Record>& records) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> store, OpenSqliteStore(path));
  LOCKSTEP_ASSERT_OK(store->Append(records));
}

void Sql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(db);
}

TEST(RecordCodec, GivesEachRecordBack) {
  for (const Record& record : OneOfEachKind()) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Record decoded, DecodeRecord(EncodeRecord(record)));
    EXPECT_TRUE(decoded == record) << "record of kind " << record.index();
  }
}

TEST(RecordCodec, RefusesBytesThatAreNoRecord) {
  EXPECT_THAT(DecodeRecord(""), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(DecodeRecord("\xff\xff"), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(MemoryStore, FailsTheAppendItIsToldToAndKeepsTheOthers) {
  MemoryStore store;
  const std::vector<Record> records = OneOfEachKind();
  store.FailAppend(2, absl::ResourceExhaustedError("full"));
  LOCKSTEP_EXPECT_OK(store.Append(std::span(records).first(1)));
  EXPECT_THAT(store.Append(records), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(store.Append(records), StatusIs(absl::StatusCode::kResourceExhausted));
  store.Crash();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Record> loaded, store.Load());
  EXPECT_TRUE(loaded == std::vector<Record>{records[0]});
  LOCKSTEP_EXPECT_OK(store.Append(records));
}

TEST(SqliteStore, GivesRecordsBackAfterItIsOpenedAgain) {
  const std::string path = FreshPath();
  const std::vector<Record> records = OneOfEachKind();
  Fill(path, {records.begin(), records.begin() + 4});
  Fill(path, {records.begin() + 4, records.end()});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> store, OpenSqliteStore(path));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Record> loaded, store->Load());
  EXPECT_TRUE(loaded == records);
}

TEST(SqliteStore, IsEmptyWhenNew) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> store, OpenSqliteStore(FreshPath()));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Record> loaded, store->Load());
  EXPECT_TRUE(loaded.empty());
}

TEST(SqliteStore, KeepsWhatWasAppendedWhenTheProcessIsKilled) {
  const std::string path = FreshPath();
  const std::vector<Record> records = OneOfEachKind();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> store, OpenSqliteStore(path));
  LOCKSTEP_ASSERT_OK(store->Append(records));
  // What is on disk while the store is open is what a kill leaves behind.
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> after,
                                OpenSqliteStore(CopyOf(path)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Record> loaded, after->Load());
  EXPECT_TRUE(loaded == records);
}

TEST(SqliteStore, KeepsAllOrNothingOfAnAppendThatWasTorn) {
  const std::string path = FreshPath();
  const std::vector<Record> records = OneOfEachKind();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> store, OpenSqliteStore(path));
  LOCKSTEP_ASSERT_OK(store->Append(std::span(records).first(2)));
  const auto before = std::filesystem::file_size(path + "-wal");
  const std::string tail = ReadFile(path + ".tail");
  LOCKSTEP_ASSERT_OK(store->Append(std::span(records).subspan(2)));
  const auto after = std::filesystem::file_size(path + "-wal");
  ASSERT_GT(after, before);
  for (auto size = before; size <= after; size += 997) {
    // The tail is written once the records are durable.
    const std::string left = CopyOf(path);
    WriteFile(left + ".tail", tail);
    std::filesystem::resize_file(left + "-wal", size);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> torn, OpenSqliteStore(left));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Record> loaded, torn->Load());
    EXPECT_TRUE(loaded.size() == 2 || loaded == records) << size << ": " << loaded.size();
  }
}

TEST(SqliteStore, IsOpenedByOneCoordinatorAtATime) {
  const std::string path = FreshPath();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(std::unique_ptr<Store> store, OpenSqliteStore(path));
  EXPECT_THAT(OpenSqliteStore(path), StatusIs(absl::StatusCode::kFailedPrecondition,
                                              HasSubstr("another coordinator")));
  store.reset();
  LOCKSTEP_EXPECT_OK(OpenSqliteStore(path));
}

TEST(SqliteStore, RefusesAFileOfAnotherKindAndLeavesItAlone) {
  const std::string path = FreshPath();
  const std::string text(5000, 'x');
  WriteFile(path, text);
  EXPECT_THAT(OpenSqliteStore(path), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(ReadFile(path), text);
}

TEST(SqliteStore, RefusesADatabaseOfAnotherProgramAndLeavesItAlone) {
  const std::string path = FreshPath();
  Sql(path, "CREATE TABLE notes (text)");
  const std::string before = ReadFile(path);
  EXPECT_THAT(OpenSqliteStore(path),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("another program")));
  EXPECT_EQ(ReadFile(path), before);
}

TEST(SqliteStore, RefusesAFormatThatItDoesNotKnow) {
  const std::string path = FreshPath();
  Fill(path, OneOfEachKind());
  Sql(path, "PRAGMA user_version=99");
  EXPECT_THAT(OpenSqliteStore(path),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("format 99")));
}

TEST(SqliteStore, RefusesAPathThatCannotBeOpened) {
  EXPECT_THAT(OpenSqliteStore(FreshPath() + "/none/store.db"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("folder")));
}

TEST(SqliteStore, SaysWhichRecordIsGarbled) {
  const std::string path = FreshPath();
  Fill(path, OneOfEachKind());
  std::string bytes = ReadFile(path);
  const std::size_t at = bytes.find("worker 'w1' was silent");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'W';
  WriteFile(path, bytes);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> store, OpenSqliteStore(path));
  EXPECT_THAT(store->Load(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record 8 does not match")));
}

TEST(SqliteStore, SaysWhichRecordIsMissingOrOutOfPlace) {
  const std::string path = FreshPath();
  Fill(path, OneOfEachKind());
  Sql(path, "DELETE FROM records WHERE id=3");
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> store, OpenSqliteStore(path));
    EXPECT_THAT(store->Load(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record 3 is missing")));
  }
  Sql(path, "UPDATE records SET id=3 WHERE id=11");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> store, OpenSqliteStore(path));
  EXPECT_THAT(store->Load(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record 3")));
}

TEST(SqliteStore, RefusesATruncatedFile) {
  const std::string path = FreshPath();
  std::vector<Record> records = OneOfEachKind();
  for (int i = 0; i < 500; ++i) records.push_back(EntryApplied{"mnist", LogNumber(1), "w0", i});
  Fill(path, records);
  const auto size = std::filesystem::file_size(path);
  for (const auto left : {size - 4096, size / 2, std::uintmax_t{5000}, std::uintmax_t{100}}) {
    const std::string copy = CopyOf(path);
    std::filesystem::resize_file(copy, left);
    EXPECT_THAT(LoadFrom(copy), StatusIs(absl::StatusCode::kDataLoss)) << left << " of " << size;
  }
}

// SQLite takes damage in the write-ahead log for its end, without an error.
TEST(SqliteStore, NoticesThatALogLostItsEnd) {
  const std::string path = FreshPath();
  const std::vector<Record> records = OneOfEachKind();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> store, OpenSqliteStore(path));
  for (const Record& record : records) LOCKSTEP_ASSERT_OK(store->Append(std::span(&record, 1)));
  const auto size = std::filesystem::file_size(path + "-wal");
  LOCKSTEP_ASSERT_OK(LoadFrom(CopyOf(path)));
  for (auto at = std::uintmax_t{40}; at < size; at += 1499) {
    const std::string left = CopyOf(path);
    std::string log = ReadFile(left + "-wal");
    log[at] = static_cast<char>(log[at] ^ 0x20);
    WriteFile(left + "-wal", log);
    const absl::StatusOr<std::vector<Record>> loaded = LoadFrom(left);
    // A page that a later one of the log replaces does not matter.
    if (loaded.ok() && *loaded == records) continue;
    EXPECT_THAT(loaded, StatusIs(absl::StatusCode::kDataLoss, HasSubstr(left))) << at;
  }
  const std::string left = CopyOf(path);
  std::filesystem::resize_file(left + "-wal", size / 2);
  EXPECT_THAT(LoadFrom(left), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("lost its end")));
  std::filesystem::remove(left + "-wal");
  EXPECT_THAT(LoadFrom(left), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(SqliteStore, DoesNotBeginAnewWhenTheDatabaseIsGone) {
  const std::string path = FreshPath();
  Fill(path, OneOfEachKind());
  std::filesystem::remove(path);
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THAT(LoadFrom(path),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("had 14 records")));
  }
}

TEST(SqliteStore, MissesItsTailUntilAnOperatorAcceptsThat) {
  const std::string path = FreshPath();
  Fill(path, OneOfEachKind());
  std::filesystem::remove(path + ".tail");
  EXPECT_THAT(LoadFrom(path), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("'accept'")));
  WriteFile(path + ".tail", "no tail at all");
  EXPECT_THAT(LoadFrom(path), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is damaged")));
  WriteFile(path + ".tail", "accept\n");
  for (int start = 0; start < 2; ++start) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Record> loaded, LoadFrom(path));
    EXPECT_TRUE(loaded == OneOfEachKind());
  }
}

TEST(SqliteStore, NoticesAnotherHistoryOfTheSameLength) {
  const std::string path = FreshPath();
  Fill(path, OneOfEachKind());
  const std::string tail = ReadFile(path + ".tail");
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".tail");
  std::vector<Record> other = OneOfEachKind();
  other[0] = GenerationStarted{Generation(4)};
  Fill(path, other);
  WriteFile(path + ".tail", tail);
  EXPECT_THAT(LoadFrom(path), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("another or none")));
}

// Each state that a kill may leave, in the order in which they are reached.
TEST(SqliteStore, TakesNoCrashForALoss) {
  const std::string path = FreshPath();
  const std::vector<Record> records = OneOfEachKind();
  // The tail is made before the database.
  LOCKSTEP_ASSERT_OK(TailFile::Create(path + ".tail"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Record> none, LoadFrom(path));
  EXPECT_TRUE(none.empty());
  // While the tail is made it has another name.
  std::filesystem::rename(path + ".tail", path + ".tail.new");
  std::filesystem::remove(path);
  LOCKSTEP_ASSERT_OK(LoadFrom(path));

  LOCKSTEP_ASSERT_OK_AND_ASSIGN(std::unique_ptr<Store> store, OpenSqliteStore(path));
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::vector<Record> after = {records.begin(), records.begin() + i + 1};
    const std::string tail_before = ReadFile(path + ".tail");
    LOCKSTEP_ASSERT_OK(store->Append(std::span(&records[i], 1)));
    const std::string tail_after = ReadFile(path + ".tail");
    ASSERT_NE(tail_before, tail_after);
    // The records are durable, and of the tail's new bytes those up to `written`.
    for (std::size_t written = 0; written <= tail_after.size(); written += 8) {
      const std::string left = CopyOf(path);
      WriteFile(left + ".tail", tail_after.substr(0, written) + tail_before.substr(written));
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Record> loaded, LoadFrom(left));
      ASSERT_TRUE(loaded == after) << i << ", " << written;
    }
  }
}

TEST(SqliteStore, BringsAnOldDatabaseToTheChain) {
  const std::string path = FreshPath();
  const std::vector<Record> records = OneOfEachKind();
  Sql(path, "PRAGMA application_id=1282110324; PRAGMA user_version=1; CREATE TABLE records (id "
            "INTEGER PRIMARY KEY, payload BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT");
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::string payload = EncodeRecord(records[i]);
    const auto id = static_cast<std::int64_t>(i) + 1;
    const auto checksum = static_cast<std::int64_t>(Digester().Add(id).Add(payload).Finish());
    Sql(path, absl::StrCat("INSERT INTO records VALUES (", id, ", x'",
                           absl::BytesToHexString(payload), "', ", checksum, ")"));
  }
  const std::string old = ReadFile(path);
  for (const bool tail_was_made : {false, true}) {  // where a kill may stop it
    WriteFile(path, old);
    std::filesystem::remove(path + ".tail");
    if (tail_was_made) LOCKSTEP_ASSERT_OK(TailFile::Create(path + ".tail"));
    for (int start = 0; start < 2; ++start) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Record> loaded, LoadFrom(path));
      EXPECT_TRUE(loaded == records);
    }
  }
  // It has the chain now.
  Sql(path, "DELETE FROM records WHERE id=14");
  EXPECT_THAT(LoadFrom(path), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("lost its end")));
  // One that is damaged stays as it is.
  WriteFile(path, old);
  Sql(path, "UPDATE records SET checksum=7 WHERE id=5");
  std::filesystem::remove(path + ".tail");
  EXPECT_THAT(LoadFrom(path),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record 5 does not match")));
}

TEST(SqliteStore, SaysThatThereIsNoSpaceAndThenWritesNoMore) {
  const std::string path = FreshPath();
  const std::vector<Record> records = OneOfEachKind();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Store> store,
                                OpenSqliteStore(path, {.max_bytes = 40'960}));
  absl::Status status;
  std::size_t appended = 0;
  while (status.ok() && appended < 1000) {
    status = store->Append(records);
    if (status.ok()) ++appended;
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(store->Append(records).ok());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<Record> loaded, store->Load());
  EXPECT_EQ(loaded.size(), appended * records.size());
}

}  // namespace
}  // namespace lockstep
