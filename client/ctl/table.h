// Table: rows of text in aligned columns, for people. Pure; thread-compatible.
#ifndef LOCKSTEP_CLIENT_CTL_TABLE_H_
#define LOCKSTEP_CLIENT_CTL_TABLE_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "client/ctl/style.h"

namespace lockstep {

// What fits a terminal, also one that is not wide.
inline constexpr std::size_t kTextWidth = 100;

// Broken at spaces where there are some, else within a word. At least one line.
std::vector<std::string> Wrap(const std::string& text, std::size_t width);

// Line breaks and other control characters become spaces.
std::string OneLine(std::string text);

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
    std::size_t max_width = 0;  // longer cells continue below; 0: no limit
  };

  struct Cell {
    std::string text;
    Style style = Style::kPlain;

    Cell() = default;
    Cell(std::string text) : text(std::move(text)) {}  // NOLINT: most cells are plain text
    Cell(const char* text) : text(text) {}             // NOLINT
    Cell(std::string text, Style style) : text(std::move(text)), style(style) {}
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Missing cells are empty, surplus ones are dropped. Texts become OneLine(): a cell
  // never breaks the table.
  void AddRow(std::vector<Cell> cells);

  // The titles, then the rows; two spaces between columns, none at the end of a
  // line. The last column continues below where kTextWidth ends. Colours do not
  // count as width.
  std::string ToString(Color color = Color::kOff) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_TABLE_H_
