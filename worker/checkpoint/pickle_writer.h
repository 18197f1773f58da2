// PickleWriter: Python values in pickle's protocol 2, as far as state dicts need them, with
// tensors as torch.save writes them. Pure; thread-compatible.
//
// Values are written one after the other; the containers take those since their begin:
//
//   pickle.BeginDict(); pickle.Text("lr"); pickle.Float(0.1); pickle.EndDict();
#ifndef LOCKSTEP_WORKER_CHECKPOINT_PICKLE_WRITER_H_
#define LOCKSTEP_WORKER_CHECKPOINT_PICKLE_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/manifest/manifest.h"

namespace lockstep {

class PickleWriter {
 public:
  PickleWriter();

  void None();
  void Bool(bool value);
  void Int(std::int64_t value);
  void Float(double value);
  void Text(absl::string_view utf8);  // below 4 GiB

  void BeginDict();  // then keys and values in turn
  void EndDict();
  void BeginList();
  void EndList();
  void BeginTuple();
  void EndTuple();

  // A contiguous tensor on the CPU whose bytes are record "data/`record`" of the archive; its
  // name does not count. Its type is not kUnspecified.
  void Tensor(const TensorSpec& spec, std::int64_t record);

  // All that was written, which is one value. Called once, last.
  std::string Finish() &&;

 private:
  void Global(absl::string_view module, absl::string_view name);

  std::string text_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_PICKLE_WRITER_H_
