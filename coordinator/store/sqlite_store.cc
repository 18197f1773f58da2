#include "coordinator/store/sqlite_store.h"

#include <sqlite3.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "coordinator/store/record_codec.h"
#include "coordinator/store/tail_file.h"

namespace lockstep {
namespace {

constexpr std::int64_t kApplicationId = 0x4c6b7374;  // "Lkst"
constexpr std::int64_t kFormat = 2;                  // PRAGMA user_version
constexpr std::int64_t kUnchainedFormat = 1;
constexpr char kGarbled[] = " does not match its checksum; restore it from a backup";

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

std::int64_t UnchainedChecksum(std::int64_t id, absl::string_view payload) {
  return static_cast<std::int64_t>(Digester().Add(id).Add(payload).Finish());
}

// Of the record behind the one of `last`.
Tail Chain(const Tail& last, absl::string_view payload) {
  const std::int64_t id = last.id + 1;
  const auto checksum =
      static_cast<std::int64_t>(Digester().Add(last.checksum).Add(id).Add(payload).Finish());
  return {id, checksum};
}

bool IsInMemory(const std::string& path) { return path.empty() || path == ":memory:"; }

class SqliteStore final : public Store {
 public:
  SqliteStore(std::string path, Database db) : path_(std::move(path)), db_(std::move(db)) {}

  absl::Status Begin(const SqliteStoreOptions& options);
  absl::StatusOr<std::vector<Record>> Load() override;
  absl::Status Append(std::span<const Record> records) override;

 private:
  // The error of the last call on the database.
  absl::Status Error(absl::string_view doing) const;
  absl::Status Run(const char* sql);
  absl::StatusOr<Statement> Prepare(const char* sql);
  absl::StatusOr<std::int64_t> Number(const char* sql);
  absl::Status Create();
  // Of a database that exists; says the format.
  absl::StatusOr<std::int64_t> CheckFormat();
  // Calls `row` with each record's id, payload and checksum.
  absl::Status ForEach(absl::FunctionRef<absl::Status(std::int64_t, absl::string_view,
                                                      std::int64_t)> row);
  // From format 1.
  absl::Status AddChain();
  std::string TailPath() const { return path_ + ".tail"; }
  absl::Status OpenTail(bool may_be_absent);
  absl::StatusOr<Tail> ReadTail();
  // Whether the log still has the record that was the newest.
  absl::Status CheckTail();
  absl::Status Damaged(std::int64_t record, absl::string_view how) const;
  absl::Status Insert(std::span<const Record> records);

  const std::string path_;
  Database db_;
  std::optional<TailFile> tail_file_;  // nothing: in memory
  Tail last_;                          // the newest record
  bool has_failed_ = false;
};

absl::Status SqliteStore::Error(absl::string_view doing) const {
  const int code = sqlite3_errcode(db_.get());
  const std::string text =
      absl::StrCat(doing, " '", path_, "': ", sqlite3_errmsg(db_.get()), " (SQLite error ",
                   sqlite3_extended_errcode(db_.get()), ")");
  switch (code) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          absl::StrCat(text, "; another coordinator has it open: stop it first"));
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(
          absl::StrCat(text, "; make room, then start the coordinator again"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(
          absl::StrCat(text, "; it is damaged or no Lockstep store: restore it from a backup"));
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return absl::InvalidArgumentError(
          absl::StrCat(text, "; give a path in a folder that exists and can be written"));
    default:
      return absl::InternalError(text);
  }
}

absl::Status SqliteStore::Run(const char* sql) {
  if (sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK) {
    return absl::OkStatus();
  }
  return Error("using store");
}

absl::StatusOr<Statement> SqliteStore::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(db_.get(), sql, -1, &statement, nullptr) != SQLITE_OK) {
    return Error("using store");
  }
  return Statement(statement);
}

absl::StatusOr<std::int64_t> SqliteStore::Number(const char* sql) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Statement statement, Prepare(sql));
  if (sqlite3_step(statement.get()) != SQLITE_ROW) return Error("reading store");
  return sqlite3_column_int64(statement.get(), 0);
}

absl::Status SqliteStore::Begin(const SqliteStoreOptions& options) {
  // Takes the lock with the first read and keeps it. Nothing is written before
  // the file is known to be ours.
  LOCKSTEP_RETURN_IF_ERROR(Run("PRAGMA locking_mode=EXCLUSIVE"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t tables,
                            Number("SELECT count(*) FROM sqlite_schema"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t application, Number("PRAGMA application_id"));
  const bool is_new = tables == 0 && application == 0;
  std::int64_t format = kFormat;
  if (!is_new) {
    LOCKSTEP_ASSIGN_OR_RETURN(format, CheckFormat());
  }
  LOCKSTEP_RETURN_IF_ERROR(OpenTail(/*may_be_absent=*/is_new || format == kUnchainedFormat));
  if (is_new && tail_file_ && tail_file_->tail() && tail_file_->tail()->id > 0) {
    return absl::DataLossError(absl::StrCat(
        "store '", path_, "' is empty or missing, but '", TailPath(), "' says that it had ",
        tail_file_->tail()->id, " records: restore both from a backup; to begin anew, remove '",
        TailPath(), "'"));
  }
  LOCKSTEP_RETURN_IF_ERROR(Run("PRAGMA journal_mode=WAL"));
  LOCKSTEP_RETURN_IF_ERROR(Run("PRAGMA synchronous=FULL"));
  if (options.max_bytes > 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t page_bytes, Number("PRAGMA page_size"));
    const std::int64_t pages = std::max<std::int64_t>(options.max_bytes / page_bytes, 1);
    const std::string limit = absl::StrCat("PRAGMA max_page_count=", pages);
    LOCKSTEP_RETURN_IF_ERROR(Run(limit.c_str()));
  }
  // The journal's lock is taken by a write, so that a second opener sees it even
  // before the first record.
  LOCKSTEP_RETURN_IF_ERROR(Run("BEGIN EXCLUSIVE"));
  absl::Status created;
  if (is_new) created = Create();
  if (format == kUnchainedFormat) created = AddChain();
  if (!created.ok()) {
    sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
    return created;
  }
  LOCKSTEP_RETURN_IF_ERROR(Run("COMMIT"));
  return CheckTail();
}

absl::Status SqliteStore::OpenTail(bool may_be_absent) {
  if (IsInMemory(path_)) return absl::OkStatus();
  absl::StatusOr<TailFile> file = TailFile::Open(TailPath());
  // Made before the database is of this format, so that a crash in between does not look
  // like a loss.
  if (absl::IsNotFound(file.status()) && may_be_absent) file = TailFile::Create(TailPath());
  if (absl::IsNotFound(file.status()) || absl::IsDataLoss(file.status())) {
    return absl::DataLossError(absl::StrCat(
        file.status().message(), ", so it is not known whether store '", path_,
        "' is complete: restore both from a backup; to accept what the store has, write the word "
        "'accept' to '", TailPath(), "'"));
  }
  if (!file.ok()) return file.status();
  tail_file_ = *std::move(file);
  return absl::OkStatus();
}

absl::StatusOr<Tail> SqliteStore::ReadTail() {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Statement newest,
      Prepare("SELECT id, checksum FROM records ORDER BY id DESC LIMIT 1"));
  const int code = sqlite3_step(newest.get());
  if (code == SQLITE_DONE) return Tail();
  if (code != SQLITE_ROW) return Error("reading store");
  return Tail{sqlite3_column_int64(newest.get(), 0), sqlite3_column_int64(newest.get(), 1)};
}

absl::Status SqliteStore::CheckTail() {
  LOCKSTEP_ASSIGN_OR_RETURN(last_, ReadTail());
  if (!tail_file_) return absl::OkStatus();
  const std::optional<Tail> expected = tail_file_->tail();
  if (expected && expected->id > 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::int64_t matches,
        Number(absl::StrCat("SELECT count(*) FROM records WHERE id=", expected->id,
                            " AND checksum=", expected->checksum)
                   .c_str()));
    if (matches == 0) {
      return absl::DataLossError(absl::StrCat(
          "store '", path_, "' lost its end: it has ", last_.id, " records, and of record ",
          expected->id, " another or none than '", TailPath(),
          "' says; its write-ahead log may be damaged. Restore both from a backup; to accept "
          "what is left, and with it that workers may be ahead, write the word 'accept' to '",
          TailPath(), "'"));
    }
  }
  return expected == last_ ? absl::OkStatus() : tail_file_->Write(last_);
}

absl::Status SqliteStore::Damaged(std::int64_t record, absl::string_view how) const {
  return absl::DataLossError(
      absl::StrCat("store '", path_, "' is damaged: record ", record, how));
}

absl::StatusOr<std::int64_t> SqliteStore::CheckFormat() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t application, Number("PRAGMA application_id"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t format, Number("PRAGMA user_version"));
  if (application != kApplicationId) {
    return absl::DataLossError(absl::StrCat("'", path_, "' is a database of another program, not a "
                                            "Lockstep store; give another path"));
  }
  if (format != kFormat && format != kUnchainedFormat) {
    return absl::DataLossError(absl::StrCat("'", path_, "' has format ", format,
                                            "; this release reads formats ", kUnchainedFormat,
                                            " and ", kFormat));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Statement check, Prepare("PRAGMA quick_check(1)"));
  if (sqlite3_step(check.get()) != SQLITE_ROW) return Error("checking store");
  const std::string result(reinterpret_cast<const char*>(sqlite3_column_text(check.get(), 0)));
  if (result == "ok") return format;
  return absl::DataLossError(absl::StrCat("store '", path_, "' is damaged (", result,
                                          "); restore it from a backup"));
}

absl::Status SqliteStore::Create() {
  LOCKSTEP_RETURN_IF_ERROR(Run(absl::StrCat("PRAGMA application_id=", kApplicationId).c_str()));
  LOCKSTEP_RETURN_IF_ERROR(Run(absl::StrCat("PRAGMA user_version=", kFormat).c_str()));
  return Run(
      "CREATE TABLE records (id INTEGER PRIMARY KEY, payload BLOB NOT NULL, "
      "checksum INTEGER NOT NULL) STRICT");
}

absl::Status SqliteStore::ForEach(
    absl::FunctionRef<absl::Status(std::int64_t, absl::string_view, std::int64_t)> row) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Statement select,
                            Prepare("SELECT id, payload, checksum FROM records ORDER BY id"));
  std::int64_t expected = 0;
  int code;
  while ((code = sqlite3_step(select.get())) == SQLITE_ROW) {
    const std::int64_t id = sqlite3_column_int64(select.get(), 0);
    if (id != ++expected) return Damaged(expected, " is missing");
    const absl::string_view payload(
        static_cast<const char*>(sqlite3_column_blob(select.get(), 1)),
        static_cast<std::size_t>(sqlite3_column_bytes(select.get(), 1)));
    LOCKSTEP_RETURN_IF_ERROR(row(id, payload, sqlite3_column_int64(select.get(), 2)));
  }
  return code == SQLITE_DONE ? absl::OkStatus() : Error("reading store");
}

absl::Status SqliteStore::AddChain() {
  LOCKSTEP_ASSIGN_OR_RETURN(const Statement update,
                            Prepare("UPDATE records SET checksum=?2 WHERE id=?1"));
  Tail last;
  std::vector<Tail> chain;
  LOCKSTEP_RETURN_IF_ERROR(ForEach(
      [&](std::int64_t id, absl::string_view payload, std::int64_t checksum) -> absl::Status {
        if (checksum != UnchainedChecksum(id, payload)) return Damaged(id, kGarbled);
        last = Chain(last, payload);
        chain.push_back(last);
        return absl::OkStatus();
      }));
  for (const Tail& link : chain) {
    sqlite3_reset(update.get());
    sqlite3_bind_int64(update.get(), 1, link.id);
    sqlite3_bind_int64(update.get(), 2, link.checksum);
    if (sqlite3_step(update.get()) != SQLITE_DONE) return Error("writing store");
  }
  return Run(absl::StrCat("PRAGMA user_version=", kFormat).c_str());
}

absl::StatusOr<std::vector<Record>> SqliteStore::Load() {
  std::vector<Record> records;
  Tail last;
  LOCKSTEP_RETURN_IF_ERROR(ForEach(
      [&](std::int64_t id, absl::string_view payload, std::int64_t checksum) -> absl::Status {
        last = Chain(last, payload);
        if (checksum != last.checksum) return Damaged(id, kGarbled);
        absl::StatusOr<Record> record = DecodeRecord(payload);
        if (!record.ok()) return Damaged(id, absl::StrCat(": ", record.status().message()));
        records.push_back(*std::move(record));
        return absl::OkStatus();
      }));
  return records;
}

absl::Status SqliteStore::Append(std::span<const Record> records) {
  if (has_failed_) {
    return absl::InternalError(
        absl::StrCat("store '", path_, "' failed before; nothing more is written to it"));
  }
  const absl::Status inserted = Insert(records);
  if (!inserted.ok()) {
    has_failed_ = true;
    sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
  return inserted;
}

absl::Status SqliteStore::Insert(std::span<const Record> records) {
  LOCKSTEP_RETURN_IF_ERROR(Run("BEGIN IMMEDIATE"));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Statement insert,
      Prepare("INSERT INTO records (id, payload, checksum) VALUES (?1, ?2, ?3)"));
  Tail last = last_;
  for (const Record& record : records) {
    const std::string payload = EncodeRecord(record);
    last = Chain(last, payload);
    sqlite3_reset(insert.get());
    sqlite3_bind_int64(insert.get(), 1, last.id);
    sqlite3_bind_blob64(insert.get(), 2, payload.data(), payload.size(), SQLITE_STATIC);
    sqlite3_bind_int64(insert.get(), 3, last.checksum);
    if (sqlite3_step(insert.get()) != SQLITE_DONE) return Error("writing store");
  }
  LOCKSTEP_RETURN_IF_ERROR(Run("COMMIT"));
  last_ = last;
  return tail_file_ ? tail_file_->Write(last_) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path,
                                                       const SqliteStoreOptions& options) {
  sqlite3* db = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database owned(db);
  if (code != SQLITE_OK) {
    return absl::InvalidArgumentError(
        absl::StrCat("opening store '", path, "': ", sqlite3_errstr(code),
                     "; give a path in a folder that exists and can be written"));
  }
  auto store = std::make_unique<SqliteStore>(path, std::move(owned));
  LOCKSTEP_RETURN_IF_ERROR(store->Begin(options));
  return std::unique_ptr<Store>(std::move(store));
}

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path) {
  return OpenSqliteStore(path, SqliteStoreOptions());
}

}  // namespace lockstep
