// PseudoTerminal: a terminal with a test at the other end.
#ifndef LOCKSTEP_CLIENT_CTL_PSEUDO_TERMINAL_H_
#define LOCKSTEP_CLIENT_CTL_PSEUDO_TERMINAL_H_

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace lockstep {

class PseudoTerminal {
 public:
  PseudoTerminal() : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_GE(master_, 0);
    EXPECT_EQ(grantpt(master_), 0);
    EXPECT_EQ(unlockpt(master_), 0);
    path_ = ptsname(master_);
    // Open as long as this is, so that what is typed, or printed, waits for a reader.
    slave_ = open(path_.c_str(), O_RDWR | O_NOCTTY);
    EXPECT_GE(slave_, 0);
  }
  // At which a person has typed ahead and then ended the input.
  explicit PseudoTerminal(const std::string& typed) : PseudoTerminal() {
    const std::string all = typed + "\x04";
    EXPECT_EQ(write(master_, all.data(), all.size()), static_cast<ssize_t>(all.size()));
  }
  ~PseudoTerminal() {
    close(slave_);
    close(master_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  const std::string& path() const { return path_; }

  void SetRows(int rows) {
    const winsize size = {.ws_row = static_cast<unsigned short>(rows), .ws_col = 80};
    EXPECT_EQ(ioctl(slave_, TIOCSWINSZ, &size), 0);
  }

  // What was printed by programs that have ended, with line breaks as "\r\n".
  std::string Printed() {
    std::string all;
    char piece[4096];
    pollfd waiting = {.fd = master_, .events = POLLIN};
    while (poll(&waiting, 1, /*timeout=*/0) == 1 && (waiting.revents & POLLIN) != 0) {
      const ssize_t count = read(master_, piece, sizeof(piece));
      if (count <= 0) break;
      all.append(piece, static_cast<std::size_t>(count));
    }
    return all;
  }

 private:
  int master_;
  int slave_ = -1;
  std::string path_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_PSEUDO_TERMINAL_H_
