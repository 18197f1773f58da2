#include "worker/trainer/flags.h"

#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

std::variant<WorkerFlags, int> Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "worker");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ParseFlags(static_cast<int>(argv.size()), argv.data());
}

TEST(ParseFlags, EveryFlagArrives) {
  const auto parsed = Parse({"--coordinator", "localhost:7000", "--job", "j", "--name", "w0",
                             "--transport", "gloo", "--interface", "eth0",
                             "--gloo-bucket-bytes", "4194304", "--model", "mlp",
                             "--data", "/data", "--epochs", "2", "--steps", "30", "--batch", "16",
                             "--seed", "9", "--optimizer", "sgd", "--lr", "0.5", "--momentum",
                             "0.8", "--weight-decay", "0.1", "--evaluate-at", "10,20",
                             "--evaluate-every", "5", "--drift-every", "0", "--report", "/r",
                             "--join-timeout", "3s", "--operation-timeout", "2m", "--verbose",
                             "--http", "0.0.0.0:7072", "--insecure", "--log-format", "json"});
  ASSERT_TRUE(std::holds_alternative<WorkerFlags>(parsed));
  const auto& [training, http, log_format, verbose] = std::get<WorkerFlags>(parsed);
  EXPECT_TRUE(verbose);
  EXPECT_EQ(http.listen, "0.0.0.0:7072");
  EXPECT_TRUE(http.insecure);
  EXPECT_TRUE(http.tls.empty());
  EXPECT_EQ(log_format, LogFormat::kJson);
  EXPECT_EQ(training.session.coordinator, "localhost:7000");
  EXPECT_EQ(training.session.job, "j");
  EXPECT_EQ(training.session.worker, "w0");
  EXPECT_EQ(training.session.transport, "gloo");
  EXPECT_EQ(training.session.interface, "eth0");
  EXPECT_EQ(training.session.gloo_bucket_bytes, 4 << 20);
  EXPECT_EQ(training.session.join_timeout, absl::Seconds(3));
  EXPECT_EQ(training.session.operation_timeout, absl::Minutes(2));
  EXPECT_EQ(training.model, "mlp");
  EXPECT_EQ(training.data, "/data");
  EXPECT_EQ(training.epochs, 2);
  EXPECT_EQ(training.steps, 30);
  EXPECT_EQ(training.batch, 16);
  EXPECT_EQ(training.seed, 9u);
  EXPECT_THAT(training.evaluate_at, ElementsAre(10, 20));
  EXPECT_EQ(training.evaluate_every, 5);
  EXPECT_EQ(training.drift_every, 0);
  EXPECT_EQ(training.report, "/r");
  const auto& sgd = std::get<Sgd>(training.optimizer);
  EXPECT_EQ(sgd.lr, 0.5);
  EXPECT_EQ(sgd.momentum, 0.8);
  EXPECT_EQ(sgd.weight_decay, 0.1);
}

TEST(ParseFlags, EveryOptimizerCanBeChosen) {
  const auto optimizer = [](const std::string& name) {
    const auto parsed = Parse({"--data", "/d", "--optimizer", name, "--weight-decay", "0.5"});
    return Describe(std::get<WorkerFlags>(parsed).training.optimizer);
  };
  EXPECT_EQ(optimizer("sgd"), Describe(Sgd{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.5}));
  EXPECT_EQ(optimizer("adam"), Describe(Adam{.lr = 2e-3, .weight_decay = 0.5}));
  EXPECT_EQ(optimizer("adamw"), Describe(AdamW{.lr = 2e-3, .weight_decay = 0.5}));
  EXPECT_EQ(optimizer("adagrad"), Describe(Adagrad{.lr = 1e-2, .weight_decay = 0.5}));
}

TEST(ParseFlags, HelpIsNoMistake) { EXPECT_EQ(std::get<int>(Parse({"--help"})), 0); }

TEST(ParseFlags, MistakesAreUsageErrors) {
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {},
           {"--data", "/d", "--no-such-flag"},
           {"--data", "/d", "--batch", "many"},
           {"--data", "/d", "--batch", "0"},
           {"--data", "/d", "--optimizer", "lion"},
           {"--data", "/d", "--lr", "-1"},
           {"--data", "/d", "--momentum", "0.9"},
           {"--data", "/d", "--join-timeout", "soon"},
           {"--data", "/d", "--operation-timeout", "0s"},
           {"--data", "/d", "--coordinator", "nowhere"},
           {"--data", "/d", "--coordinator", "host:1", "--job", "j"},
           {"--data", "/d", "--evaluate-at", "-1"},
           {"--data", "/d", "--http", "7072"},
           {"--data", "/d", "--log-format", "xml"},
       }) {
    const auto parsed = Parse(wrong);
    ASSERT_TRUE(std::holds_alternative<int>(parsed)) << testing::PrintToString(wrong);
    EXPECT_EQ(std::get<int>(parsed), 2);
  }
}

}  // namespace
}  // namespace lockstep
