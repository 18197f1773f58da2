#include "metrics/families.h"

#include <prometheus/text_serializer.h>

#include <cstddef>
#include <limits>
#include <sstream>
#include <utility>

namespace lockstep {

MetricFamily::MetricFamily(const std::string& name, prometheus::MetricType type,
                           const std::string& help) {
  family_.name = "lockstep_" + name;
  family_.type = type;
  family_.help = help;
}

void MetricFamily::Set(MetricLabels labels, double value) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = value;
  metric.counter.value = value;
  family_.metric.push_back(std::move(metric));
}

void MetricFamily::Set(MetricLabels labels, const HistogramValue& value) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < value.counts.size(); ++i) {
    count += static_cast<std::uint64_t>(value.counts[i]);
    const double bound = i < value.bounds.size() ? value.bounds[i]
                                                 : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({count, bound});
  }
  metric.histogram.sample_count = count;
  metric.histogram.sample_sum = value.sum;
  family_.metric.push_back(std::move(metric));
}

std::string TextOf(std::vector<MetricFamily> families) {
  std::vector<prometheus::MetricFamily> all;
  all.reserve(families.size());
  for (MetricFamily& family : families) all.push_back(std::move(family.get()));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, all);
  return out.str();
}

}  // namespace lockstep
