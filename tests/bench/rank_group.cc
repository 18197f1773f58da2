#include "tests/bench/rank_group.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kRunTimeout = absl::Minutes(2);
constexpr absl::Duration kEndTimeout = absl::Seconds(20);
constexpr std::size_t kLastWords = 2000;

Measured MeasuredOf(const Json& answer) {
  Measured measured = {.ms = answer.value("ns", 0.0) / 1e6};
  const Json parts = answer.value("parts", Json::object());
  for (const auto& [part, ns] : parts.items()) {
    measured.parts_ms[part] = ns.get<double>() / 1e6;
  }
  return measured;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankGroup>> RankGroup::Start(const RankGroupOptions& options) {
  std::unique_ptr<RankGroup> group(new RankGroup(options));
  LOCKSTEP_ASSIGN_OR_RETURN(group->memory_, SharedMemory::Create(options.room_bytes));
  for (int rank = 0; rank < options.ranks; ++rank) {
    LOCKSTEP_RETURN_IF_ERROR(group->StartRank(rank));
  }
  for (int rank = 0; rank < options.ranks; ++rank) {
    LOCKSTEP_RETURN_IF_ERROR(group->Receive(rank, options.start_timeout).status());
  }
  return group;
}

absl::Status RankGroup::StartRank(int rank) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::InternalError(absl::StrCat("socketpair: ", strerror(errno)));
  }
  channels_.emplace_back(ends[0]);
  Json config = options_.config;
  config["rank"] = rank;
  config["ranks"] = options_.ranks;
  config["channel"] = ends[1];
  config["memory"] = memory_->path();
  std::vector<std::string> arguments(options_.command.begin() + 1, options_.command.end());
  arguments.push_back(config.dump());
  // This child alone inherits its end: another's copy would hide that it is gone.
  fcntl(ends[1], F_SETFD, 0);
  auto process = ChildProcess::Start({.program = options_.command.front(),
                                      .arguments = std::move(arguments),
                                      .environment = {{"OMP_NUM_THREADS", "1"},
                                                      {"MKL_NUM_THREADS", "1"},
                                                      {"GLOO_SOCKET_IFNAME", "lo"},
                                                      {"PYTHONDONTWRITEBYTECODE", "1"}},
                                      .output_file = LogPath(rank)});
  close(ends[1]);
  if (!process.ok()) return process.status();
  processes_.push_back(*std::move(process));
  return absl::OkStatus();
}

absl::StatusOr<Json> RankGroup::Receive(int rank, absl::Duration timeout) {
  absl::StatusOr<Json> message = channels_[rank].Receive(timeout);
  if (!message.ok()) return Explain(rank, message.status());
  if (message->contains("error")) {
    return Explain(rank, absl::UnavailableError(message->at("error").dump()));
  }
  return message;
}

absl::Status RankGroup::Explain(int rank, const absl::Status& status) const {
  const std::string log = ReadFile(LogPath(rank)).value_or("");
  return absl::Status(
      status.code(),
      absl::StrCat("rank ", rank, " of ", options_.name, ": ", status.message(), "; its log ends:\n",
                   log.size() <= kLastWords ? log : log.substr(log.size() - kLastWords)));
}

std::string RankGroup::LogPath(int rank) const {
  return absl::StrCat(options_.folder, "/", options_.name, "-", rank, ".log");
}

absl::StatusOr<Measured> RankGroup::Run(const std::string& name) {
  for (Channel& channel : channels_) {
    LOCKSTEP_RETURN_IF_ERROR(channel.Send({{"run", name}}));
  }
  Measured slowest;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Json answer, Receive(rank, kRunTimeout));
    Measured measured = MeasuredOf(answer);
    if (measured.ms > slowest.ms) slowest = std::move(measured);
  }
  return slowest;
}

absl::StatusOr<std::vector<Json>> RankGroup::Stop() {
  for (Channel& channel : channels_) {
    LOCKSTEP_RETURN_IF_ERROR(channel.Send({{"stop", true}}));
  }
  std::vector<Json> accounts;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Json answer, Receive(rank, kEndTimeout));
    const Json account = answer.value("account", Json());
    if (account.is_object()) accounts.push_back(account);
    if (account.is_array()) accounts.insert(accounts.end(), account.begin(), account.end());
  }
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const std::optional<ChildExit> exit = processes_[rank]->Wait(kEndTimeout);
    if (exit && exit->ok()) continue;
    return Explain(rank, absl::InternalError(exit ? absl::StrCat("ended with ", exit->ToString())
                                                  : "did not end"));
  }
  return accounts;
}

}  // namespace lockstep
