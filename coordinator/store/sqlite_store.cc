#include "coordinator/store/sqlite_store.h"

#include <sqlite3.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "coordinator/store/record_codec.h"

namespace lockstep {
namespace {

constexpr std::int64_t kApplicationId = 0x4c6b7374;  // "Lkst"
constexpr std::int64_t kFormat = 1;                  // PRAGMA user_version

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

std::int64_t Checksum(std::int64_t id, absl::string_view payload) {
  return static_cast<std::int64_t>(Digester().Add(id).Add(payload).Finish());
}

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
  absl::Status CheckFormat();
  absl::Status Insert(std::span<const Record> records);

  const std::string path_;
  Database db_;
  std::int64_t last_id_ = 0;
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
  if (!is_new) LOCKSTEP_RETURN_IF_ERROR(CheckFormat());
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
  absl::Status created = is_new ? Create() : absl::OkStatus();
  if (!created.ok()) {
    sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
    return created;
  }
  LOCKSTEP_RETURN_IF_ERROR(Run("COMMIT"));
  LOCKSTEP_ASSIGN_OR_RETURN(last_id_, Number("SELECT coalesce(max(id), 0) FROM records"));
  return absl::OkStatus();
}

absl::Status SqliteStore::CheckFormat() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t application, Number("PRAGMA application_id"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t format, Number("PRAGMA user_version"));
  if (application != kApplicationId) {
    return absl::DataLossError(absl::StrCat("'", path_, "' is a database of another program, not a "
                                            "Lockstep store; give another path"));
  }
  if (format != kFormat) {
    return absl::DataLossError(absl::StrCat("'", path_, "' has format ", format,
                                            "; this release reads format ", kFormat));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Statement check, Prepare("PRAGMA quick_check(1)"));
  if (sqlite3_step(check.get()) != SQLITE_ROW) return Error("checking store");
  const std::string result(reinterpret_cast<const char*>(sqlite3_column_text(check.get(), 0)));
  if (result == "ok") return absl::OkStatus();
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

absl::StatusOr<std::vector<Record>> SqliteStore::Load() {
  LOCKSTEP_ASSIGN_OR_RETURN(const Statement select,
                            Prepare("SELECT id, payload, checksum FROM records ORDER BY id"));
  std::vector<Record> records;
  int code;
  while ((code = sqlite3_step(select.get())) == SQLITE_ROW) {
    const auto expected_id = static_cast<std::int64_t>(records.size()) + 1;
    const std::int64_t id = sqlite3_column_int64(select.get(), 0);
    const absl::string_view payload(
        static_cast<const char*>(sqlite3_column_blob(select.get(), 1)),
        static_cast<std::size_t>(sqlite3_column_bytes(select.get(), 1)));
    const std::string where = absl::StrCat("store '", path_, "' is damaged: record ", expected_id);
    if (id != expected_id) return absl::DataLossError(absl::StrCat(where, " is missing"));
    if (sqlite3_column_int64(select.get(), 2) != Checksum(id, payload)) {
      return absl::DataLossError(
          absl::StrCat(where, " does not match its checksum; restore it from a backup"));
    }
    absl::StatusOr<Record> record = DecodeRecord(payload);
    if (!record.ok()) {
      return absl::DataLossError(absl::StrCat(where, ": ", record.status().message()));
    }
    records.push_back(*std::move(record));
  }
  if (code != SQLITE_DONE) return Error("reading store");
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
  std::int64_t id = last_id_;
  for (const Record& record : records) {
    ++id;
    const std::string payload = EncodeRecord(record);
    sqlite3_reset(insert.get());
    sqlite3_bind_int64(insert.get(), 1, id);
    sqlite3_bind_blob64(insert.get(), 2, payload.data(), payload.size(), SQLITE_STATIC);
    sqlite3_bind_int64(insert.get(), 3, Checksum(id, payload));
    if (sqlite3_step(insert.get()) != SQLITE_DONE) return Error("writing store");
  }
  LOCKSTEP_RETURN_IF_ERROR(Run("COMMIT"));
  last_id_ = id;
  return absl::OkStatus();
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
