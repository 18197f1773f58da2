// docs/two-hosts.md, typed block by block into shells on three hosts.
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/e2e_cluster.h"
#include "tests/hosts/document.h"
#include "tests/hosts/hosts_cluster.h"
#include "tests/hosts/network.h"
#include "tests/hosts/shell.h"
#include "tests/hosts/world_fixture.h"
#include "tools/local_cluster/local_cluster.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The hosts of the test have one file system, and a folder each instead: HOST: is that of the
// host with this address.
constexpr char kScp[] =
    "#!/bin/bash\n"
    "set -e\n"
    "[[ ${!#} == *: ]]\n"
    "cp \"${@:1:$#-1}\" \"$HOSTS/${!#%:}/home\"\n";

class Document : public WorldTest {
 protected:
  // A clone of the project on a host, as `./lockstep build` leaves it.
  absl::Status MakeClone(const std::string& clone) {
    fs::create_directories(clone);
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string dev_ca, FindRunfile("lockstep/tools/dev_ca.sh"));
    const fs::path built = fs::path(dev_ca).parent_path().parent_path();
    fs::create_directory_symlink(built, clone + "/bazel-bin");
    fs::create_directory_symlink(built / "tools", clone + "/tools");
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string mnist, FindMnist());
    fs::create_directory_symlink(mnist, clone + "/mnist");
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<HostShell>> OpenShell(const std::string& host,
                                                       const std::string& address) {
    const std::string folder = absl::StrCat(directory_, "/", address);
    LOCKSTEP_RETURN_IF_ERROR(MakeClone(folder + "/clone"));
    fs::create_directories(folder + "/home");
    return HostShell::Open(*network_, host, folder + "/clone",
                           {{"HOSTS", directory_},
                            {"HOME", folder + "/home"},
                            {"PATH", absl::StrCat(directory_, ":/usr/bin:/bin:/usr/sbin:/sbin")}});
  }

  nlohmann::json Report(int worker) {
    const std::string& address = HostAddresses().at(worker % 2 == 0 ? kHostA : kHostB);
    const auto text =
        ReadFile(absl::StrCat(directory_, "/", address, "/clone/w", worker, ".json"));
    EXPECT_THAT(text, IsOk());
    return nlohmann::json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  }

  const std::string directory_ = MakeFolder();
  std::unique_ptr<Network> network_;
};

TEST_F(Document, OfTwoHostsIsTrueToTheLetter) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string path, FindRunfile("lockstep/docs/two-hosts.md"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string page, ReadFile(path));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::vector<CommandBlock> blocks, CommandBlocks(page));
  ASSERT_GE(blocks.size(), 9);

  LOCKSTEP_ASSERT_OK(WriteFile(directory_ + "/scp", kScp));
  fs::permissions(directory_ + "/scp", fs::perms::owner_all);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(network_, Network::Create(directory_, HostAddresses()));
  std::map<std::string, std::unique_ptr<HostShell>> shells;
  for (const auto& [host, address] : HostAddresses()) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(shells[host], OpenShell(host, address));
  }
  std::set<std::string> used;
  for (const CommandBlock& block : blocks) {
    ASSERT_TRUE(block.host == "all" || shells.contains(block.host))
        << path << ":" << block.line << ": there is no host " << block.host;
    for (const auto& [host, shell] : shells) {
      if (block.host != "all" && block.host != host) continue;
      used.insert(host);
      const absl::Status typed = shell->Type(block.commands, kPatience);
      ASSERT_THAT(typed, IsOk()) << path << ":" << block.line << ", on " << host;
    }
  }
  EXPECT_EQ(used.size(), shells.size());

  const nlohmann::json first = Report(0);
  for (int i = 0; i < kWorkers; ++i) {
    const nlohmann::json report = Report(i);
    ASSERT_FALSE(report.is_discarded()) << i;
    EXPECT_EQ(report.at("world_size"), kWorkers) << i;
    EXPECT_EQ(report.at("transport"), "gloo") << i;
    EXPECT_EQ(report.at("parameter_digest"), first.at("parameter_digest")) << i;
    EXPECT_EQ(report.at("switches").size(), 1) << i;
    EXPECT_EQ(report.at("switches"), first.at("switches")) << i;
  }
  std::cout << shells.at(kCoordinatorHost)->output();
}

}  // namespace
}  // namespace lockstep
