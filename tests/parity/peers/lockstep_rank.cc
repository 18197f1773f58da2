// lockstep_rank PLAN: one rank of the comparison, through Lockstep's public API.
//
// PLAN is a JSON file by worlds.py: who this rank is and which scripts it plays.
// For each operation of a script one line of JSON goes to the plan's output,
// flushed at once, so that of a rank that hangs it is known how far it came.
// peer_rank.py does the same with the peers.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "tests/parity/peers/inputs.h"
#include "tests/parity/peers/models.h"
#include "torch/torch.h"
#include "worker/session/session.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

// Sockets that this process has open.
int OpenSockets() {
  int sockets = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.rfind("socket:", 0) == 0) ++sockets;
  }
  return sockets;
}

Json ValuesOf(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().flatten();
  return std::vector<double>(flat.const_data_ptr<double>(),
                             flat.const_data_ptr<double>() + flat.numel());
}

Json ValuesOf(const std::map<std::string, at::Tensor>& tensors) {
  Json values = Json::object();
  for (const auto& [name, tensor] : tensors) values[name] = ValuesOf(tensor);
  return values;
}

// Plays one script as one rank.
class Player {
 public:
  Player(const Json& plan, const Json& script, const Inputs& inputs, std::ostream* out)
      : plan_(plan),
        script_(script),
        rank_(plan.at("rank").get<int>()),
        model_(MakePeerModel(script, inputs, rank_)),
        out_(*out) {}

  void Play() {
    absl::Status status = Note("construct", [this] { return Join(); });
    for (const Json& op : script_.at("ops")) {
      if (!status.ok()) break;
      if (op.contains("ranks") && !Contains(op.at("ranks"), rank_)) continue;
      status = Note(op.at("do").get<std::string>(), [&] { return Do(op); });
    }
    if (session_ != nullptr) session_->Leave(status);
  }

 private:
  static bool Contains(const Json& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  }

  absl::Status Join() {
    SessionOptions options = {
        .coordinator = plan_.at("coordinator").get<std::string>(),
        .transport = plan_.at("transport").get<std::string>(),
        .join_timeout = absl::Seconds(plan_.at("join_timeout_s").get<double>()),
        .operation_timeout = absl::Seconds(plan_.at("operation_timeout_s").get<double>())};
    if (!options.coordinator.empty()) {
      options.job = script_.at("job").get<std::string>();
      options.worker = absl::StrCat("w", rank_);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(session_,
                              model_->Join(options, Sgd{.lr = plan_.at("lr").get<double>()}));
    return absl::OkStatus();
  }

  absl::Status Do(const Json& op) {
    const auto what = op.at("do").get<std::string>();
    if (what == "forward") return Forward();
    if (what == "evaluate") return Evaluate();
    if (what == "accumulate") return Accumulate();
    if (what == "backward") return Backward();
    if (what == "step") return session_->Step({.samples = plan_.at("rows").get<std::int64_t>()});
    if (what == "train_step") return TrainStep(op);
    if (what == "mark") Mark();
    if (what == "reassign") model_->Reassign(Probe(), ProbeValue() + 1);
    if (what == "reshape") model_->Reassign(Probe(), Marks(2 + rank_));
    if (what == "register") model_->Register(Probe(), Marks(2));
    if (what == "idle") absl::SleepFor(absl::Seconds(op.at("seconds").get<double>()));
    return absl::OkStatus();
  }

  absl::Status Forward() {
    LOCKSTEP_RETURN_IF_ERROR(session_->BeforeForward());
    const at::Tensor loss = model_->Loss(batch_++);
    loss_ = loss_.defined() ? loss_ + loss : loss;
    return absl::OkStatus();
  }

  absl::Status Backward() {
    std::exchange(loss_, at::Tensor()).backward();
    return absl::OkStatus();
  }

  absl::Status Accumulate() {
    const auto no_sync = session_->NoSync();
    LOCKSTEP_RETURN_IF_ERROR(Forward());
    return Backward();
  }

  absl::Status Evaluate() {
    const torch::NoGradGuard no_grad;
    model_->SetTraining(false);
    LOCKSTEP_RETURN_IF_ERROR(session_->BeforeForward());
    model_->Loss(batch_++);
    model_->SetTraining(true);
    return absl::OkStatus();
  }

  absl::Status TrainStep(const Json& op) {
    if (op.contains("data_on") && !Contains(op.at("data_on"), rank_)) {
      LOCKSTEP_RETURN_IF_ERROR(session_->BeforeForward());
      return session_->Step({.samples = 0});
    }
    LOCKSTEP_RETURN_IF_ERROR(Forward());
    LOCKSTEP_RETURN_IF_ERROR(Backward());
    return session_->Step({.samples = plan_.at("rows").get<std::int64_t>()});
  }

  std::string Probe() const { return script_.at("probe").get<std::string>(); }
  at::Tensor ProbeValue() { return model_->Buffers().at(Probe()); }
  at::Tensor Marks(std::int64_t elements) const {
    return torch::full({elements}, 10.0 * (rank_ + 1));
  }
  void Mark() {
    const torch::NoGradGuard no_grad;
    ProbeValue().copy_(Marks(2));
  }

  // Does one operation and writes down what came of it.
  template <typename Operation>
  absl::Status Note(const std::string& what, Operation operation) {
    const std::int64_t syncs = session_ == nullptr ? 0 : session_->stats().sync.transfers;
    const auto start = std::chrono::steady_clock::now();
    absl::Status status;
    try {
      status = operation();
    } catch (const std::exception& e) {
      status = absl::InternalError(e.what());
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    Json note = {{"script", script_.at("name")}, {"do", what},
                 {"error", status.ok() ? "" : status.ToString()}, {"seconds", took.count()},
                 {"buffers", ValuesOf(model_->Buffers())}, {"weights", ValuesOf(model_->Parameters())},
                 {"seen", nullptr}, {"syncs", 0}, {"sockets", OpenSockets()}};
    if (model_->Seen().defined()) note["seen"] = ValuesOf(model_->Seen());
    if (session_ != nullptr) note["syncs"] = session_->stats().sync.transfers - syncs;
    out_ << note.dump() << std::endl;
    return status;
  }

  const Json& plan_;
  const Json& script_;
  const int rank_;
  // The session uses the model, so it goes first.
  const std::unique_ptr<PeerModel> model_;
  std::unique_ptr<Session> session_;
  std::ostream& out_;
  std::int64_t batch_ = 0;
  at::Tensor loss_;  // of the forwards since the last backward
};

absl::Status Run(const std::string& plan_path) {
  std::ifstream plan_file(plan_path);
  const Json plan = Json::parse(plan_file, nullptr, /*allow_exceptions=*/false);
  if (!plan.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(plan_path, " is not a plan in JSON"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Inputs inputs,
                            ReadInputs(plan.at("inputs").get<std::string>()));
  at::set_num_threads(1);
  std::ofstream out(plan.at("output").get<std::string>());
  out << Json({{"ready", true}, {"version", TORCH_VERSION}}).dump() << std::endl;
  for (const Json& script : plan.at("scripts")) Player(plan, script, inputs, &out).Play();
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: lockstep_rank PLAN\n";
    return 2;
  }
  lockstep::SetUpLog("lockstep_rank", lockstep::LogLevel::kInfo);
  const absl::Status status = lockstep::Run(argv[1]);
  if (!status.ok()) {
    std::cerr << "lockstep_rank: " << status << "\n";
    return 1;
  }
}
