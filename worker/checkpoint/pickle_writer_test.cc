#include "worker/checkpoint/pickle_writer.h"

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tools/process/child_process.h"

namespace lockstep {
namespace {

// What `code` prints, where p is the pickle and tensors are shown as what is in them.
std::string Python(PickleWriter pickle, const std::string& code) {
  const std::string script = absl::StrCat(
      R"(
import io, pickle
class Reader(pickle.Unpickler):
    def find_class(self, module, name):
        if name == "OrderedDict":
            return dict
        return lambda *a: (module + "." + name, *a) if a else None
    def persistent_load(self, pid):
        return pid[0], pid[2:]
)",
      "p = bytes.fromhex('", absl::BytesToHexString(std::move(pickle).Finish()), "')\n", code);
  const auto run = RunProgram({.program = "/usr/bin/python3", .arguments = {"-c", script}},
                              absl::Minutes(1));
  LOCKSTEP_EXPECT_OK(run);
  return run.ok() ? run->output : "";
}

TEST(PickleWriter, PythonReadsEachKindOfValue) {
  PickleWriter pickle;
  pickle.BeginDict();
  pickle.Text("größe");
  pickle.BeginList();
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-3}, std::int64_t{INT32_MAX},
                                   std::int64_t{INT32_MAX} + 1, INT64_MIN, INT64_MAX}) {
    pickle.Int(value);
  }
  pickle.EndList();
  pickle.Int(5);
  pickle.BeginTuple();
  pickle.Float(0.1);
  pickle.Float(-1e-300);
  pickle.Bool(true);
  pickle.Bool(false);
  pickle.None();
  pickle.BeginTuple();
  pickle.EndTuple();
  pickle.BeginDict();
  pickle.EndDict();
  pickle.EndTuple();
  pickle.EndDict();
  EXPECT_EQ(Python(std::move(pickle), "print(pickle.loads(p))"),
            "{'größe': [0, -3, 2147483647, 2147483648, -9223372036854775808, "
            "9223372036854775807], 5: (0.1, -1e-300, True, False, None, (), {})}\n");
}

TEST(PickleWriter, TensorsAreRebuiltFromTheirRecords) {
  PickleWriter typed;
  typed.Tensor({"w", DType::kBfloat16, {2, 3, 4}}, 17);
  EXPECT_EQ(Python(std::move(typed), "print(Reader(io.BytesIO(p)).load()[1:])"),
            "(('storage', ('17', 'cpu', 24)), 0, (2, 3, 4), (12, 4, 1), False, {})\n");
  PickleWriter untyped;
  untyped.Tensor({"w", DType::kUint16, {5, 0}}, 3);
  EXPECT_EQ(Python(std::move(untyped), "print(Reader(io.BytesIO(p)).load()[:6])"),
            "('torch._utils._rebuild_tensor_v3', ('storage', ('3', 'cpu', 0)), 0, (5, 0), (1, 1), "
            "False)\n");
}

}  // namespace
}  // namespace lockstep
