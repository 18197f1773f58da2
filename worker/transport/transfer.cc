#include "worker/transport/transfer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

// Of weights, named in a text.
constexpr std::size_t kNamedWeights = 8;

std::uint64_t DigestOf(const std::vector<double>& weights) {
  return Digester().Add(std::as_bytes(std::span(weights))).Finish();
}

std::string WeightsText(const std::vector<double>& weights) {
  std::vector<std::string> texts;
  for (const double weight : std::span(weights).first(std::min(weights.size(), kNamedWeights))) {
    // The shortest of both that tells it from its neighbours.
    std::string text = absl::StrFormat("%.15g", weight);
    if (std::strtod(text.c_str(), nullptr) != weight) text = absl::StrFormat("%.17g", weight);
    texts.push_back(std::move(text));
  }
  std::string all = absl::StrJoin(texts, ", ");
  if (weights.size() > kNamedWeights) {
    absl::StrAppend(&all, " and ", weights.size() - kNamedWeights, " more (digest ",
                    absl::Hex(DigestOf(weights)), ")");
  }
  return all;
}

absl::Status CheckWeights(const Transfer& transfer, int world_size) {
  if (transfer.weights.empty()) return absl::OkStatus();
  if (transfer.reduce != ReduceOp::kMean) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a ", transfer.reduce.has_value() ? ReduceOpName(*transfer.reduce) : "broadcast",
        " was given weights; only a mean has any"));
  }
  if (transfer.weights.size() != static_cast<std::size_t>(world_size)) {
    return absl::InvalidArgumentError(absl::StrCat(transfer.weights.size(), " weights for ",
                                                   world_size,
                                                   " ranks; there must be one for each rank"));
  }
  double sum = 0;
  for (std::size_t r = 0; r < transfer.weights.size(); ++r) {
    const double weight = transfer.weights[r];
    if (!std::isfinite(weight) || weight < 0) {
      return absl::InvalidArgumentError(absl::StrCat("the weight of rank ", r, " is ", weight,
                                                     "; it must be a finite number of at least 0"));
    }
    sum += weight;
  }
  if (!std::isfinite(sum) || sum <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weights of a mean add up to ", sum,
                     "; the sum must be finite and above 0: some rank must count"));
  }
  return absl::OkStatus();
}

absl::Status CheckReducible(const TensorSpec& spec, ReduceOp op) {
  if (IsReducible(spec.dtype, op)) return absl::OkStatus();
  std::vector<absl::string_view> others;
  for (const ReduceOp other : kReduceOps) {
    if (IsReducible(spec.dtype, other)) others.push_back(ReduceOpName(other));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor '", spec.name, "' is ", DTypeName(spec.dtype), ", which is not reduced by ",
      ReduceOpName(op), "; broadcast it, reduce it by ", absl::StrJoin(others, " or "),
      ", or reduce a copy of another dtype"));
}

}  // namespace

std::int64_t Transfer::bytes() const {
  std::int64_t sum = 0;
  for (const TensorView& view : views) {
    if (__builtin_add_overflow(sum, view.bytes(), &sum)) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return sum;
}

std::string MannerText(const Transfer& transfer) {
  std::string text = transfer.reduce.has_value()
                         ? std::string(ReduceOpName(*transfer.reduce))
                         : absl::StrCat("broadcast from rank ", transfer.root);
  if (!transfer.weights.empty()) {
    absl::StrAppend(&text, " weighted by ", WeightsText(transfer.weights));
  }
  return text;
}

std::uint64_t TransferDigest(const Transfer& transfer) {
  Digester digester;
  const std::uint64_t layout =
      transfer.layout.has_value() ? *transfer.layout : LayoutDigest(transfer.views);
  digester.Add(static_cast<std::int64_t>(layout));
  if (transfer.reduce.has_value()) {
    digester.Add(absl::string_view("reduce"));
    digester.Add(static_cast<std::int64_t>(*transfer.reduce));
  } else {
    digester.Add(absl::string_view("broadcast"));
    digester.Add(static_cast<std::int64_t>(transfer.root));
  }
  digester.Add(static_cast<std::int64_t>(DigestOf(transfer.weights)));
  return digester.Finish();
}

absl::Status CheckViews(std::span<const Transfer> transfers) {
  std::size_t tensors = 0;
  for (const Transfer& transfer : transfers) tensors += transfer.views.size();
  if (tensors > kMaxTensors || transfers.size() > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat(transfers.size(), " transfers of ", tensors,
                     " tensors in one exchange; the limit of both is ", kMaxTensors));
  }
  for (const Transfer& transfer : transfers) {
    for (const TensorView& view : transfer.views) {
      if (ElementBytes(view.spec.dtype) == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor '", view.spec.name, "' has no dtype"));
      }
      const bool negative = std::any_of(view.spec.shape.begin(), view.spec.shape.end(),
                                        [](std::int64_t size) { return size < 0; });
      if (negative || (view.data == nullptr && view.bytes() > 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor '", view.spec.name, "' (", view.spec.ToString(),
                         negative ? ") has a negative dimension" : ") has no data"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckManner(std::span<const Transfer> transfers, int world_size) {
  for (const Transfer& transfer : transfers) {
    if (!transfer.reduce.has_value() && (transfer.root < 0 || transfer.root >= world_size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the root of a broadcast is rank ", transfer.root, ", but ranks are 0 to ",
                       world_size - 1));
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckWeights(transfer, world_size));
    if (!transfer.reduce.has_value()) continue;
    for (const TensorView& view : transfer.views) {
      LOCKSTEP_RETURN_IF_ERROR(CheckReducible(view.spec, *transfer.reduce));
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep
