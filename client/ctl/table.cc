#include "client/ctl/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// A last column is not squeezed below this, even if the line gets too long.
constexpr std::size_t kMinLastWidth = 24;

// Characters of UTF-8 text: bytes that begin one.
bool BeginsOne(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }
std::size_t Width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), BeginsOne));
}

// Where the line that begins at `begin` ends: before a space if possible.
std::size_t LineEnd(const std::string& text, std::size_t begin, std::size_t width) {
  std::size_t end = begin;
  std::size_t space = std::string::npos;
  for (std::size_t taken = 0; end < text.size(); ++end) {
    if (text[end] == ' ') space = end;
    if (BeginsOne(text[end]) && taken++ == width) {
      return space == std::string::npos ? end : space;
    }
  }
  return end;
}

}  // namespace

std::vector<std::string> Wrap(const std::string& text, std::size_t width) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  do {
    const std::size_t end = LineEnd(text, begin, std::max<std::size_t>(width, 1));
    lines.push_back(text.substr(begin, end - begin));
    begin = std::min(text.find_first_not_of(' ', end), text.size());
  } while (begin < text.size());
  return lines;
}

std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return text;
}

void Table::AddRow(std::vector<Cell> cells) {
  cells.resize(columns_.size());
  for (Cell& cell : cells) cell.text = OneLine(std::move(cell.text));
  rows_.push_back(std::move(cells));
}

std::string Table::ToString(Color color) const {
  const std::size_t last = columns_.size() - 1;
  std::vector<std::size_t> widths;
  std::size_t left_of_last = 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = 0;
    for (const auto& row : rows_) width = std::max(width, Width(row[i].text));
    std::size_t limit = columns_[i].max_width;
    if (i == last) limit = std::max(kMinLastWidth, kTextWidth - std::min(kTextWidth, left_of_last));
    if (limit > 0) width = std::min(width, limit);
    widths.push_back(std::max(width, Width(columns_[i].title)));
    left_of_last += widths.back() + 2;
  }

  std::string text;
  const auto append_line = [&](const std::vector<Cell>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(widths[i] - Width(cells[i].text), ' ');
      const std::string painted = Paint(cells[i].text, cells[i].style, color);
      if (i > 0) line += "  ";
      line += columns_[i].align == Align::kLeft ? painted + padding : padding + painted;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  };
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.emplace_back(column.title);
  append_line(titles);
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> wrapped;
    std::size_t lines = 1;
    for (std::size_t i = 0; i < row.size(); ++i) {
      wrapped.push_back(Wrap(row[i].text, widths[i]));
      lines = std::max(lines, wrapped.back().size());
    }
    for (std::size_t n = 0; n < lines; ++n) {
      std::vector<Cell> cells;
      for (std::size_t i = 0; i < row.size(); ++i) {
        cells.emplace_back(n < wrapped[i].size() ? wrapped[i][n] : "", row[i].style);
      }
      append_line(cells);
    }
  }
  return text;
}

}  // namespace lockstep
