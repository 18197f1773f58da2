// Metric families, and their text as Prometheus reads it. Values; any thread.
//
// Names get the prefix "lockstep_". What is measured, and when, is up to who fills them.
#ifndef LOCKSTEP_METRICS_FAMILIES_H_
#define LOCKSTEP_METRICS_FAMILIES_H_

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

// What Prometheus expects to get back, as the header Content-Type.
inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

// How often a value was at most a bound.
struct HistogramValue {
  std::span<const double> bounds;        // ascending
  std::span<const std::int64_t> counts;  // between bounds: one more, for what is above all
  double sum = 0;                        // of the values
};

class MetricFamily {
 public:
  MetricFamily(const std::string& name, prometheus::MetricType type, const std::string& help);

  void Set(MetricLabels labels, double value);
  void Set(MetricLabels labels, const HistogramValue& value);

  prometheus::MetricFamily& get() { return family_; }

 private:
  prometheus::MetricFamily family_;
};

inline MetricFamily Gauge(const std::string& name, const std::string& help) {
  return MetricFamily(name, prometheus::MetricType::Gauge, help);
}
inline MetricFamily Counter(const std::string& name, const std::string& help) {
  return MetricFamily(name, prometheus::MetricType::Counter, help);
}
inline MetricFamily Histogram(const std::string& name, const std::string& help) {
  return MetricFamily(name, prometheus::MetricType::Histogram, help);
}

// In Prometheus' text format.
std::string TextOf(std::vector<MetricFamily> families);

}  // namespace lockstep

#endif  // LOCKSTEP_METRICS_FAMILIES_H_
