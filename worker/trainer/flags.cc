#include "worker/trainer/flags.h"

#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "security/tls_flags.h"

namespace lockstep {
namespace {

constexpr int kUsageError = 2;

// Flags that are put together after parsing.
struct RawFlags {
  std::string optimizer = "adamw";
  std::optional<double> lr;
  std::optional<double> momentum;
  std::optional<double> weight_decay;
  std::vector<std::int64_t> evaluate_at;
  std::string join_timeout = "5m";
  std::string operation_timeout = "60s";
  std::string rejoin_timeout = "5m";
  std::string end_at;
  std::string log_format = "text";
};

void Declare(CLI::App& app, WorkerFlags& flags, RawFlags& raw) {
  TrainingOptions& training = flags.training;
  SessionOptions& session = training.session;
  app.add_option("--coordinator", session.coordinator,
                 "host:port of the coordinator; empty: train alone");
  AddClientTlsFlags(&app, &session.tls);
  app.add_option("--job", session.job, "Job to take part in");
  app.add_option("--name", session.worker, "This worker's name, unique in the job");
  app.add_option("--transport", session.transport,
                 "How tensors move: shm (ranks of one host), gloo (of several) or nccl (on GPUs)")
      ->capture_default_str();
  app.add_option("--gloo-bucket-bytes", session.gloo_bucket_bytes,
                 "What gloo moves as one message, 1 to 32 MiB; equal on all workers")
      ->capture_default_str();
  app.add_option("--interface", session.interface,
                 "Network interface by which peers reach this worker over gloo or nccl")
      ->capture_default_str();
  app.add_option("--gpu", session.gpu, "With nccl: the GPU that this worker trains on")
      ->capture_default_str();
  app.add_option("--model", training.model,
                 "conv, resnet, mlp, or the path of a TorchScript module that ends in .pt")
      ->capture_default_str();
  app.add_option("--data", training.data, "Folder of the four MNIST idx files");
  app.add_option("--epochs", training.epochs, "Passes over the data")->capture_default_str();
  app.add_option("--steps", training.steps, "Stop after so many steps; 0: after the epochs")
      ->capture_default_str();
  app.add_option("--batch", training.batch, "Images of each rank in each step")
      ->capture_default_str();
  app.add_option("--seed", training.seed, "Of the model and the order of the data")
      ->capture_default_str();
  app.add_option("--optimizer", raw.optimizer, "sgd, adam, adamw or adagrad")
      ->capture_default_str();
  app.add_option("--lr", raw.lr, "Learning rate [adam, adamw: 0.002, adagrad: 0.01, sgd: 0.05]");
  app.add_option("--momentum", raw.momentum, "Of sgd [0.9]");
  app.add_option("--weight-decay", raw.weight_decay, "[adamw: 0.01, else 0]");
  app.add_option("--evaluate-at", raw.evaluate_at,
                 "Steps after which to evaluate, as 10,20; the end is always one")
      ->delimiter(',');
  app.add_option("--evaluate-every", training.evaluate_every, "Steps between evaluations; 0: none")
      ->capture_default_str();
  app.add_option("--drift-every", training.drift_every,
                 "Steps between measurements of how far buffers are apart; 0: none")
      ->capture_default_str();
  CheckpointOptions& checkpoints = session.checkpoints;
  app.add_option("--checkpoint-dir", checkpoints.directory,
                 "Directory of the job's checkpoints, which all workers see; the job begins with "
                 "the newest that is there, and writes one at the end");
  app.add_option("--checkpoint-every", checkpoints.every_steps,
                 "Steps between checkpoints; 0: only on command and at the end")
      ->capture_default_str();
  app.add_option("--checkpoint-keep", checkpoints.keep, "Checkpoints that are kept; 0: all")
      ->capture_default_str();
  app.add_option("--report", training.report, "File for the report (JSON), written at the end");
  app.add_option("--join-timeout", raw.join_timeout, "Time to wait for coordinator and workers")
      ->capture_default_str();
  app.add_option("--operation-timeout", raw.operation_timeout,
                 "Time after which a rank counts as missing")
      ->capture_default_str();
  app.add_option("--rejoin-timeout", raw.rejoin_timeout,
                 "Time to wait for a new epoch when a worker is lost; 0: this one ends, too")
      ->capture_default_str();
  app.add_option("--end-at", raw.end_at,
                 "For tests of failures: the process kills itself at PHASE:STEP, as "
                 "committed:7; phases are forward, collected, agreed, reducing, preparing, "
                 "prepared, committed, updating, spreading, applying");
  app.add_option("--http", flags.http.listen,
                 "HOST:PORT to serve metrics and health on, with the certificate that the "
                 "coordinator is shown; port 0: any free one");
  app.add_flag("--insecure", flags.http.insecure, "Serve them to other hosts without TLS, too");
  app.add_option("--log-format", raw.log_format,
                 "text for people, or json: one object per line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_flag("--verbose", flags.verbose, "Log more");
}

absl::Status Refuse(absl::string_view flag, absl::string_view value, absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " is '", value, "'; ", allowed));
}

absl::StatusOr<absl::Duration> ParseTimeout(absl::string_view flag, const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration <= absl::ZeroDuration()) {
    return Refuse(flag, text, "expected a time above 0, as 30s or 5m");
  }
  return duration;
}

absl::StatusOr<TrainingMoment> ParseMoment(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  TrainingMoment moment;
  const std::optional<StepPhase> phase = StepPhaseOf(parts.first);
  if (!phase.has_value() || !absl::SimpleAtoi(parts.second, &moment.step) || moment.step < 0) {
    return Refuse("--end-at", text, "expected PHASE:STEP, as committed:7; see --help");
  }
  moment.phase = *phase;
  return moment;
}

absl::StatusOr<OptimizerConfig> OptimizerOf(const RawFlags& raw) {
  if (raw.optimizer != "sgd" && raw.momentum.has_value()) {
    return Refuse("--momentum", absl::StrCat(*raw.momentum),
                  absl::StrCat("allowed only with --optimizer sgd, not ", raw.optimizer));
  }
  if (raw.optimizer == "sgd") {
    return Sgd{.lr = raw.lr.value_or(0.05),
               .momentum = raw.momentum.value_or(0.9),
               .weight_decay = raw.weight_decay.value_or(0)};
  }
  if (raw.optimizer == "adam") {
    return Adam{.lr = raw.lr.value_or(2e-3), .weight_decay = raw.weight_decay.value_or(0)};
  }
  if (raw.optimizer == "adamw") {
    return AdamW{.lr = raw.lr.value_or(2e-3), .weight_decay = raw.weight_decay.value_or(1e-2)};
  }
  if (raw.optimizer == "adagrad") {
    return Adagrad{.lr = raw.lr.value_or(1e-2), .weight_decay = raw.weight_decay.value_or(0)};
  }
  return Refuse("--optimizer", raw.optimizer, "allowed are sgd, adam, adamw, adagrad");
}

absl::Status Assemble(const RawFlags& raw, WorkerFlags& flags) {
  TrainingOptions& training = flags.training;
  LOCKSTEP_ASSIGN_OR_RETURN(training.session.join_timeout,
                            ParseTimeout("--join-timeout", raw.join_timeout));
  LOCKSTEP_ASSIGN_OR_RETURN(training.session.operation_timeout,
                            ParseTimeout("--operation-timeout", raw.operation_timeout));
  if (raw.rejoin_timeout == "0") {
    training.session.rejoin_timeout = absl::ZeroDuration();
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(training.session.rejoin_timeout,
                              ParseTimeout("--rejoin-timeout", raw.rejoin_timeout));
  }
  if (!raw.end_at.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(training.end_at, ParseMoment(raw.end_at));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(training.optimizer, OptimizerOf(raw));
  training.evaluate_at.insert(raw.evaluate_at.begin(), raw.evaluate_at.end());
  if (!flags.http.listen.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(ParseHostPort(flags.http.listen).status());
  }
  // A worker that shows a token to the coordinator may have no certificate.
  if (!training.session.tls.certificate.empty()) {
    flags.http.tls = training.session.tls;
    flags.http.tls.token.clear();
  }
  flags.log_format = raw.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  return training.Validate();
}

}  // namespace

std::variant<WorkerFlags, int> ParseFlags(int argc, char** argv) {
  WorkerFlags flags;
  RawFlags raw;
  CLI::App app("Trains one rank of a model on MNIST, in lockstep with the job's other workers.",
               "worker");
  Declare(app, flags, raw);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  const absl::Status status = Assemble(raw, flags);
  if (!status.ok()) {
    std::cerr << "worker: " << status.message() << "\nRun with --help for more information.\n";
    return kUsageError;
  }
  return flags;
}

}  // namespace lockstep
