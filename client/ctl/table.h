// Table: rows of text in aligned columns, for people. Pure; thread-compatible.
#ifndef LOCKSTEP_CLIENT_CTL_TABLE_H_
#define LOCKSTEP_CLIENT_CTL_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Missing cells are empty, surplus ones are dropped. Line breaks and other
  // control characters become spaces: a cell never breaks the table.
  void AddRow(std::vector<std::string> cells);

  // The titles, then one line per row; two spaces between columns, none at the
  // end of a line.
  std::string ToString() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_TABLE_H_
