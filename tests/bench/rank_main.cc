// bench_rank CONFIG: one rank of a bench, told by JSON over an inherited socket
// what to do. Not for people: ./lockstep bench starts it.
//
//   rank -> bench  {"ready": true}
//   bench -> rank  {"run": "step"}
//   rank -> bench  {"ns": 31000000, "parts": {"1 collect": 1000, ...}}
//   bench -> rank  {"stop": true}
//   rank -> bench  {"account": {...}, several [{...}, ...], or null}
//
// Any error is {"error": "..."} and ends it. peers/peer_rank.py speaks the same.
#include <iostream>
#include <memory>
#include <string>

#include "ATen/Parallel.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "tests/bench/channel.h"
#include "tests/bench/rank_bench.h"
#include "tests/bench/shared_memory.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

// Of the bench, which ends everything much earlier when something is wrong.
constexpr absl::Duration kPatience = absl::Minutes(10);
constexpr absl::Duration kBarrierTimeout = absl::Seconds(60);

RankConfig ConfigOf(const Json& json, SharedMemory* memory) {
  const Json& sizes = json.at("sizes");
  return {.rank = json.at("rank").get<int>(),
          .ranks = json.at("ranks").get<int>(),
          .bench = json.at("bench").get<std::string>(),
          .coordinator = json.at("coordinator").get<std::string>(),
          .job = json.at("job").get<std::string>(),
          .transport = json.at("transport").get<std::string>(),
          .sizes = {.matrices = sizes.at("matrices").get<std::int64_t>(),
                    .side = sizes.at("side").get<std::int64_t>(),
                    .broadcast_elements = sizes.at("broadcast_elements").get<std::int64_t>(),
                    .agreements = sizes.at("agreements").get<std::int64_t>(),
                    .cold_bytes = sizes.at("cold_bytes").get<std::int64_t>(),
                    .train_batch = sizes.at("train_batch").get<std::int64_t>(),
                    .train_steps = sizes.at("train_steps").get<std::int64_t>()},
          .data = json.at("data").get<std::string>(),
          .memory = memory};
}

absl::Status Serve(const RankConfig& config, Channel& channel) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<RankBench> bench, MakeRankBench(config));
  LOCKSTEP_RETURN_IF_ERROR(channel.Send({{"ready", true}}));
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Json message, channel.Receive(kPatience));
    if (message.contains("stop")) return channel.Send({{"account", bench->Leave()}});
    const auto name = message.at("run").get<std::string>();
    LOCKSTEP_RETURN_IF_ERROR(bench->Prepare(name));
    LOCKSTEP_RETURN_IF_ERROR(config.memory->Barrier(config.ranks, kBarrierTimeout));
    LOCKSTEP_ASSIGN_OR_RETURN(const Repetition done, bench->Run(name));
    LOCKSTEP_RETURN_IF_ERROR(bench->Finish(name));
    LOCKSTEP_RETURN_IF_ERROR(channel.Send({{"ns", done.total}, {"parts", done.parts}}));
  }
}

absl::Status Run(const Json& json) {
  at::set_num_threads(1);
  SetUpLog(absl::StrCat("rank-", json.at("rank").get<int>()), LogLevel::kWarning);
  Channel channel(json.at("channel").get<int>());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<SharedMemory> memory,
                            SharedMemory::Open(json.at("memory").get<std::string>()));
  const absl::Status status = Serve(ConfigOf(json, memory.get()), channel);
  if (!status.ok()) channel.Send({{"error", status.ToString()}}).IgnoreError();
  return status;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const nlohmann::json config =
      argc == 2 ? nlohmann::json::parse(argv[1], nullptr, /*allow_exceptions=*/false)
                : nlohmann::json();
  if (!config.is_object()) {
    std::cerr << "usage: bench_rank CONFIG, as ./lockstep bench starts it\n";
    return 2;
  }
  const absl::Status status = lockstep::Run(config);
  if (!status.ok()) std::cerr << "bench_rank: " << status << "\n";
  return status.ok() ? 0 : 1;
}
