#include "client/ctl/table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

Table NamesAndSteps() {
  return Table({{.title = "NAME"}, {.title = "STEP", .align = Table::Align::kRight}});
}

TEST(Table, AlignsEachColumnToItsWidestCell) {
  Table table = NamesAndSteps();
  table.AddRow({"mnist", "7"});
  table.AddRow({"a-long-name", "12345"});
  EXPECT_EQ(table.ToString(),
            "NAME          STEP\n"
            "mnist            7\n"
            "a-long-name  12345\n");
}

TEST(Table, PrintsTitlesAloneWhenThereAreNoRows) {
  EXPECT_EQ(NamesAndSteps().ToString(), "NAME  STEP\n");
}

TEST(Table, LeavesNoSpacesAtTheEndOfALine) {
  Table table({{.title = "A"}, {.title = "B"}});
  table.AddRow({"wide cell"});
  EXPECT_EQ(table.ToString(), "A          B\nwide cell\n");
}

TEST(Table, DropsSurplusCellsAndFillsMissingOnes) {
  Table table = NamesAndSteps();
  table.AddRow({"x", "1", "surplus"});
  table.AddRow({});
  EXPECT_EQ(table.ToString(), "NAME  STEP\nx        1\n\n");
}

TEST(Wrap, BreaksAtSpacesAndWithinWordsThatAreTooLong) {
  using testing::ElementsAre;
  EXPECT_THAT(Wrap("", 5), ElementsAre(""));
  EXPECT_THAT(Wrap("a bc de", 4), ElementsAre("a bc", "de"));
  EXPECT_THAT(Wrap("ab cde", 4), ElementsAre("ab", "cde"));
  EXPECT_THAT(Wrap("abcdef g", 4), ElementsAre("abcd", "ef g"));
  EXPECT_THAT(Wrap("gr\u00f6\u00dfe ist", 5), ElementsAre("gr\u00f6\u00dfe", "ist"));
}

TEST(Table, ContinuesTheLastColumnBelowWhereTheTextWidthEnds) {
  Table table = Table({{.title = "NAME", .max_width = 4}, {.title = "DETAIL"}});
  std::string detail;
  for (int i = 0; i < 30; ++i) detail += "worker ";
  table.AddRow({"a-name", detail});
  const std::string thirteen_workers = [] {
    std::string text = "worker";
    for (int i = 1; i < 13; ++i) text += " worker";
    return text;
  }();
  EXPECT_EQ(table.ToString(), "NAME  DETAIL\n"
                              "a-na  " + thirteen_workers + "\n"
                              "me    " + thirteen_workers + "\n"
                              "      worker worker worker worker\n");
}

TEST(Table, CountsCharactersAndNotBytes) {
  Table table = NamesAndSteps();
  table.AddRow({"größe", "1"});
  EXPECT_EQ(table.ToString(), "NAME   STEP\ngröße     1\n");
}

TEST(Table, ColoursTextAndKeepsTheAlignment) {
  Table table = Table({{.title = "N", .align = Table::Align::kRight},
                       {.title = "STATE"},
                       {.title = "DETAIL"}});
  table.AddRow({{"1", Style::kBad}, {"ready", Style::kGood}, "x"});
  table.AddRow({"22", {"off", Style::kPending}, {"", Style::kBad}});
  EXPECT_EQ(table.ToString(Color::kOn),
            " N  STATE  DETAIL\n"
            " \x1b[31m1\x1b[0m  \x1b[32mready\x1b[0m  x\n"
            "22  \x1b[33moff\x1b[0m\n");
  EXPECT_EQ(table.ToString(), " N  STATE  DETAIL\n 1  ready  x\n22  off\n");
}

TEST(Table, ColoursEachLineOfACellThatContinuesBelow) {
  Table table = Table({{.title = "A", .max_width = 2}, {.title = "B"}});
  table.AddRow({{"abc", Style::kGood}, "x"});
  EXPECT_EQ(table.ToString(Color::kOn),
            "A   B\n\x1b[32mab\x1b[0m  x\n\x1b[32mc\x1b[0m\n");
}

TEST(Table, ACellCannotBreakTheTableOrSteerTheTerminal) {
  Table table = NamesAndSteps();
  table.AddRow({"a\nb\x1b[2J", "1"});
  EXPECT_EQ(table.ToString(), "NAME     STEP\na b [2J     1\n");
}

}  // namespace
}  // namespace lockstep
