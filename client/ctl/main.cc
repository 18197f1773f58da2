// lockstepctl: operates jobs of a coordinator from the command line. Exit codes: ExitCode.
#include <cstdlib>

#include "client/ctl/app.h"

int main(int argc, char** argv) {
  // The library's own complaints would repeat what the messages say better.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  return static_cast<int>(lockstep::CommandLine().Run(argc, argv));
}
