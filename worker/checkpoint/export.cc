#include "worker/checkpoint/export.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/policy/pattern.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/checkpoint_layout.h"
#include "worker/checkpoint/pickle_writer.h"
#include "worker/checkpoint/zip_writer.h"

namespace lockstep {
namespace {

constexpr char kMasterSlot[] = "master";

// Where the bytes of a record come from.
struct FromParameters {
  const Placement* placement;
};
struct FromSlot {
  const Placement* placement;
  absl::string_view slot;
};
struct FromReplicated {};
struct FromStep {};
struct Record {
  TensorSpec spec;
  std::variant<FromParameters, FromSlot, FromReplicated, FromStep> from;
};

// The pickle, and the records that its tensors are in.
class StateDicts {
 public:
  static absl::StatusOr<StateDicts> Of(const CheckpointManifest& manifest) {
    StateDicts dicts(manifest);
    for (const ParameterGroup& group : GroupsOf(manifest.optimizer)) {
      LOCKSTEP_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(group.pattern));
      dicts.patterns_.push_back(std::move(pattern));
    }
    dicts.Write();
    dicts.text_ = std::move(dicts.pickle_).Finish();
    return dicts;
  }

  const std::string& pickle() const { return text_; }
  const std::vector<Record>& records() const { return records_; }

 private:
  explicit StateDicts(const CheckpointManifest& manifest) : manifest_(manifest) {
    for (const Placement& placement : manifest.plan.placements) {
      placements_.emplace(placement.name, &placement);
    }
  }

  void Tensor(Record record) {
    pickle_.Tensor(record.spec, static_cast<std::int64_t>(records_.size()));
    records_.push_back(std::move(record));
  }

  void Write() {
    pickle_.BeginDict();
    pickle_.Text("model");
    WriteModel();
    pickle_.Text("optimizer");
    pickle_.BeginDict();
    pickle_.Text("state");
    WriteState();
    pickle_.Text("param_groups");
    WriteGroups();
    pickle_.EndDict();
    WriteMasters();
    pickle_.EndDict();
  }

  void WriteModel() {
    pickle_.BeginDict();
    for (const ParameterSpec& parameter : manifest_.model.parameters) {
      pickle_.Text(parameter.tensor.name);
      if (parameter.trainable) {
        Tensor({parameter.tensor, FromParameters{placements_.at(parameter.tensor.name)}});
      } else {
        Tensor({parameter.tensor, FromReplicated{}});
      }
    }
    for (const TensorSpec& buffer : manifest_.model.buffers) {
      if (buffer.dtype == DType::kUnspecified) continue;
      pickle_.Text(buffer.name);
      Tensor({buffer, FromReplicated{}});
    }
    pickle_.EndDict();
  }

  // Torch numbers parameters group by group.
  std::vector<std::vector<const ParameterSpec*>> ByGroup() const {
    std::vector<std::vector<const ParameterSpec*>> groups(1 + patterns_.size());
    for (const ParameterSpec& parameter : manifest_.model.parameters) {
      std::size_t group = 0;
      for (std::size_t i = patterns_.size(); i-- > 0;) {
        if (patterns_[i].Matches(parameter.tensor.name)) group = i + 1;
      }
      groups[group].push_back(&parameter);
    }
    return groups;
  }

  static TensorSpec FloatsLike(const TensorSpec& tensor) {
    return {.name = tensor.name, .dtype = DType::kFloat32, .shape = tensor.shape};
  }

  // Whether the slot has all elements of the parameter.
  static bool Covers(const CheckpointSlot& slot, const Placement& placement) {
    return slot.begin <= placement.offset;
  }

  // Torch's optimizers have no masters.
  static bool IsTorchs(const CheckpointSlot& slot, const Placement& placement) {
    return slot.name != kMasterSlot && Covers(slot, placement);
  }

  void WriteState() {
    const bool has_step = !std::holds_alternative<Sgd>(manifest_.optimizer);
    pickle_.BeginDict();
    std::int64_t index = 0;
    for (const auto& group : ByGroup()) {
      for (const ParameterSpec* parameter : group) {
        const std::int64_t number = index++;
        if (!parameter->trainable || manifest_.optimizer_steps == 0) continue;
        const Placement* placement = placements_.at(parameter->tensor.name);
        const bool has_slot = std::ranges::any_of(
            manifest_.slots, [&](const CheckpointSlot& slot) { return IsTorchs(slot, *placement); });
        if (!has_step && !has_slot) continue;
        pickle_.Int(number);
        pickle_.BeginDict();
        if (has_step) {
          // A tensor for each, as torch counts each up on its own.
          pickle_.Text("step");
          Tensor({{.name = "step", .dtype = DType::kFloat32}, FromStep{}});
        }
        for (const CheckpointSlot& slot : manifest_.slots) {
          if (!IsTorchs(slot, *placement)) continue;
          pickle_.Text(slot.name);
          Tensor({FloatsLike(parameter->tensor), FromSlot{placement, slot.name}});
        }
        pickle_.EndDict();
      }
    }
    pickle_.EndDict();
  }

  void Setting(absl::string_view name, double value) {
    pickle_.Text(name);
    pickle_.Float(value);
  }
  void Flag(absl::string_view name, bool value) {
    pickle_.Text(name);
    pickle_.Bool(value);
  }
  void Nothing(absl::string_view name) {
    pickle_.Text(name);
    pickle_.None();
  }

  void Settings(const Sgd& config) {
    Setting("momentum", config.momentum);
    Setting("dampening", config.dampening);
    Flag("nesterov", config.nesterov);
  }
  template <typename AdamLike>
  void AdamSettings(const AdamLike& config, bool decoupled) {
    pickle_.Text("betas");
    pickle_.BeginTuple();
    pickle_.Float(config.beta1);
    pickle_.Float(config.beta2);
    pickle_.EndTuple();
    Setting("eps", config.eps);
    Flag("amsgrad", false);
    Flag("capturable", false);
    Flag("decoupled_weight_decay", decoupled);
  }
  void Settings(const Adam& config) { AdamSettings(config, false); }
  void Settings(const AdamW& config) { AdamSettings(config, true); }
  void Settings(const Adagrad& config) {
    Setting("lr_decay", config.lr_decay);
    Setting("initial_accumulator_value", config.initial_accumulator_value);
    Setting("eps", config.eps);
  }

  void WriteGroups() {
    const std::vector<ParameterGroup>& own = GroupsOf(manifest_.optimizer);
    const double decay =
        std::visit([](const auto& config) { return config.weight_decay; }, manifest_.optimizer);
    pickle_.BeginList();
    std::int64_t index = 0;
    std::size_t number = 0;
    for (const auto& group : ByGroup()) {
      const ParameterGroup settings = number == 0 ? ParameterGroup{} : own[number - 1];
      ++number;
      pickle_.BeginDict();
      Setting("lr", manifest_.learning_rate * settings.lr_scale);
      Setting("weight_decay", settings.weight_decay.value_or(decay));
      std::visit([this](const auto& config) { Settings(config); }, manifest_.optimizer);
      Flag("maximize", false);
      Flag("differentiable", false);
      Nothing("foreach");
      Nothing("fused");
      pickle_.Text("params");
      pickle_.BeginList();
      for (std::size_t i = 0; i < group.size(); ++i) pickle_.Int(index++);
      pickle_.EndList();
      pickle_.EndDict();
    }
    pickle_.EndList();
  }

  void WriteMasters() {
    const CheckpointSlot* masters = nullptr;
    for (const CheckpointSlot& slot : manifest_.slots) {
      if (slot.name == kMasterSlot) masters = &slot;
    }
    if (masters == nullptr) return;
    pickle_.Text("masters");
    pickle_.BeginDict();
    for (const ParameterSpec& parameter : manifest_.model.parameters) {
      if (!parameter.trainable) continue;
      const Placement* placement = placements_.at(parameter.tensor.name);
      if (!Covers(*masters, *placement)) continue;
      pickle_.Text(parameter.tensor.name);
      Tensor({FloatsLike(parameter.tensor), FromSlot{placement, masters->name}});
    }
    pickle_.EndDict();
  }

  const CheckpointManifest& manifest_;
  std::map<absl::string_view, const Placement*> placements_;
  std::vector<Pattern> patterns_;
  PickleWriter pickle_;
  std::string text_;
  std::vector<Record> records_;
};

absl::Status ReadRecord(CheckpointReader& checkpoint, const Record& record,
                        std::vector<std::byte>& bytes) {
  bytes.resize(static_cast<std::size_t>(record.spec.bytes()));
  if (bytes.empty()) return absl::OkStatus();
  if (const auto* from = std::get_if<FromParameters>(&record.from)) {
    return checkpoint.ReadParameters(
        BlockAt(checkpoint.manifest().plan, from->placement->offset), from->placement->offset,
        bytes);
  }
  if (const auto* from = std::get_if<FromSlot>(&record.from)) {
    // A vector's memory is aligned for all types.
    return checkpoint.ReadSlot(from->slot, from->placement->offset,
                               std::span(reinterpret_cast<float*>(bytes.data()),
                                         bytes.size() / sizeof(float)));
  }
  if (std::holds_alternative<FromReplicated>(record.from)) {
    return checkpoint.ReadReplicated(record.spec.name, bytes);
  }
  const auto step = static_cast<float>(checkpoint.manifest().optimizer_steps);
  std::memcpy(bytes.data(), &step, sizeof(step));
  return absl::OkStatus();
}

}  // namespace

absl::Status ExportToTorch(CheckpointReader& checkpoint, FileSystem& files,
                           const std::string& path) {
  LOCKSTEP_RETURN_IF_ERROR(checkpoint.CheckFiles());
  LOCKSTEP_ASSIGN_OR_RETURN(const StateDicts dicts, StateDicts::Of(checkpoint.manifest()));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                            AtomicFile::Create(files, path, "export"));
  ZipWriter zip(file.get());
  // PyTorch takes any name for this folder.
  const auto name = [](absl::string_view record) { return absl::StrCat("archive/", record); };
  LOCKSTEP_RETURN_IF_ERROR(zip.Add(name("data.pkl"), dicts.pickle()));
  LOCKSTEP_RETURN_IF_ERROR(zip.Add(name("byteorder"), "little"));
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < dicts.records().size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(ReadRecord(checkpoint, dicts.records()[i], bytes));
    LOCKSTEP_RETURN_IF_ERROR(zip.Add(name(absl::StrCat("data/", i)), bytes));
  }
  LOCKSTEP_RETURN_IF_ERROR(zip.Add(name("version"), "3\n"));
  LOCKSTEP_RETURN_IF_ERROR(zip.Finish());
  return file->Commit().status();
}

}  // namespace lockstep
