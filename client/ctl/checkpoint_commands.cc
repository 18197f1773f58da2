#include "client/ctl/checkpoint_commands.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/options.h"
#include "client/ctl/table.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/checkpoint_layout.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/export.h"
#include "worker/checkpoint/file_system.h"

namespace lockstep {
namespace {

constexpr char kDirectoryHelp[] = "the directory that the workers were given by --checkpoint-dir";

ExitCode ListCheckpoints(const Context& context, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = HostFileSystem().List(directory);
  if (!names.ok()) return Fail(names.status());
  Table table({{"STEP", Table::Align::kRight}, {"JOB"}, {"EPOCH", Table::Align::kRight},
               {"RANKS", Table::Align::kRight}, {"BYTES", Table::Align::kRight}, {"STATE"}});
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& name : *names) {
    const std::optional<std::int64_t> step = StepOfDirectory(name);
    if (!step.has_value()) continue;
    const absl::StatusOr<CheckpointManifest> manifest =
        ReadManifest(HostFileSystem(), directory, *step);
    if (!manifest.ok()) {
      const std::string state = absl::IsNotFound(manifest.status())
                                    ? "incomplete"
                                    : std::string(manifest.status().message());
      const Style style = absl::IsNotFound(manifest.status()) ? Style::kPending : Style::kBad;
      table.AddRow({absl::StrCat(*step), "", "", "", "", {state, style}});
      all.push_back({{"step", *step}, {"state", state}});
      continue;
    }
    std::int64_t bytes = 0;
    for (const CheckpointFile& file : manifest->files) bytes += file.sum.bytes;
    const std::size_t ranks = manifest->plan.shards.size();
    table.AddRow({absl::StrCat(*step), manifest->id.job, absl::StrCat(manifest->id.epoch),
                  absl::StrCat(ranks), absl::StrCat(bytes), {"complete", Style::kGood}});
    all.push_back({{"step", *step},
                   {"job", manifest->id.job},
                   {"epoch", manifest->id.epoch},
                   {"ranks", ranks},
                   {"bytes", bytes},
                   {"samples", manifest->samples},
                   {"state", "complete"}});
  }
  Print(context.json ? absl::StrCat(all.dump(2), "\n") : table.ToString(context.color));
  return ExitCode::kOk;
}

struct ExportFlags {
  std::string directory;
  std::optional<std::int64_t> step;
  std::string out;
};

ExitCode ExportCheckpoint(const Context& context, const ExportFlags& flags) {
  FileSystem& files = HostFileSystem();
  absl::StatusOr<std::int64_t> step =
      flags.step.has_value() ? *flags.step : FindLatest(files, flags.directory);
  if (!step.ok()) return Fail(step.status());
  absl::StatusOr<std::unique_ptr<CheckpointReader>> checkpoint =
      CheckpointReader::Open(files, flags.directory, *step);
  if (!checkpoint.ok()) return Fail(checkpoint.status());
  const absl::Status exported = ExportToTorch(**checkpoint, files, flags.out);
  if (!exported.ok()) return Fail(exported);
  if (context.json) {
    Print(absl::StrCat(nlohmann::json({{"step", *step}, {"file", flags.out}}).dump(2), "\n"));
  } else {
    Print(absl::StrCat("step ", *step, " is in ", flags.out,
                       ": torch.load(path, weights_only=True) gives {model, optimizer}\n"));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddCheckpointCommands(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* checkpoint = app->add_subcommand("checkpoint", "checkpoints on disk: list, export");
  checkpoint->require_subcommand(1);

  CLI::App* list = checkpoint->add_subcommand("list", "what a directory of checkpoints holds");
  auto directory = std::make_shared<std::string>();
  list->add_option("directory", *directory, kDirectoryHelp)->required()->type_name(kFileType);
  list->callback([=] {
    context->needs_client = false;
    *chosen = [=] { return ListCheckpoints(*context, *directory); };
  });
  AddExample(list, "checkpoint list /data/mnist/checkpoints");

  CLI::App* save = checkpoint->add_subcommand(
      "export", "write one file that Python's torch.load(weights_only=True) reads");
  auto flags = std::make_shared<ExportFlags>();
  save->add_option("directory", flags->directory, kDirectoryHelp)
      ->required()
      ->type_name(kFileType);
  save->add_option("--step", flags->step, "of the checkpoint; not given: the newest");
  save->add_option("--out", flags->out, "the file to write")->required()->type_name(kFileType);
  save->callback([=] {
    context->needs_client = false;
    *chosen = [=] { return ExportCheckpoint(*context, *flags); };
  });
  AddExample(save, "checkpoint export /data/mnist/checkpoints --out model.pt");
}

}  // namespace lockstep
