// Runs the binary against a server in this process.
#ifndef LOCKSTEP_CLIENT_CTL_CTL_FIXTURE_H_
#define LOCKSTEP_CLIENT_CTL_CTL_FIXTURE_H_

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/rpc/rpc_fixture.h"

namespace lockstep {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

class Lockstepctl : public RpcFixture {
 protected:
  // `arguments` and `environment`, NAME=VALUE..., go through a shell. Standard output goes to
  // the file, or terminal, `out`, if one is named. No config file of a person is used.
  Outcome Run(const std::string& arguments, const std::string& coordinator = "",
              const std::string& environment = "", const std::string& out = "") {
    static std::atomic<int> runs = 0;
    const std::string base = absl::StrCat(testing::TempDir(), "/run", getpid(), "-", ++runs);
    const std::string command = absl::StrCat(
        "LOCKSTEP_COORDINATOR=", coordinator.empty() ? server_->address() : coordinator,
        " LOCKSTEP_CONFIG=", NoConfig(), " USER=ada ", environment, " client/ctl/lockstepctl ",
        arguments, " >", out.empty() ? base + ".out" : out, " 2>", base, ".err");
    const int status = std::system(command.c_str());
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            .out = ReadFile(base + ".out"),
            .err = ReadFile(base + ".err")};
  }

  // A path at which there is nothing.
  static std::string NoConfig() {
    return absl::StrCat(testing::TempDir(), "/no-config", getpid(), "/config.json");
  }

  static std::string ReadFile(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // The path.
  static std::string WriteFile(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(testing::TempDir(), "/", name, getpid());
    std::ofstream(path) << text;
    return path;
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_CTL_FIXTURE_H_
