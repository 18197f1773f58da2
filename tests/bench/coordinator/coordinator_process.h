// CoordinatorProcess: the real coordinator program on one core, with its store on disk.
// Used by one thread.
#ifndef LOCKSTEP_TESTS_BENCH_COORDINATOR_COORDINATOR_PROCESS_H_
#define LOCKSTEP_TESTS_BENCH_COORDINATOR_COORDINATOR_PROCESS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "security/tls_files.h"
#include "tools/process/child_process.h"

namespace lockstep {

// The cores this process may use: the first is the coordinator's, the others the workers'. With
// only one both share it.
struct Cores {
  int coordinator = 0;
  std::vector<int> workers;
};
// Errors: Internal: the system does not say.
absl::StatusOr<Cores> FindCores();
// This thread, and those it starts. Errors: Internal.
absl::Status PinThisThread(const std::vector<int>& cores);

// Of this process and those it starts. Errors: ResourceExhausted: the hard limit is lower.
absl::Status AllowOpenFiles(std::uint64_t files);

class CoordinatorProcess {
 public:
  // `directory` exists and takes store and log.
  CoordinatorProcess(std::string directory, TlsFiles tls, Cores cores);

  // Until it serves; again after Kill(): on the same store and port.
  // Errors: NotFound: it was not built. Unavailable: it ended, or did not serve in time.
  absl::Status Start();
  // kill -9.
  void Kill();

  const std::string& address() const { return address_; }
  std::int64_t resident_bytes() const;
  std::int64_t peak_bytes() const;
  double cpu_seconds() const;  // since it was started

 private:
  std::string Proc(const std::string& file) const;

  const std::string directory_;
  const TlsFiles tls_;
  const Cores cores_;
  std::string address_;
  int starts_ = 0;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_COORDINATOR_COORDINATOR_PROCESS_H_
