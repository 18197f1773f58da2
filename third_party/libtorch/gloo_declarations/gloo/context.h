// Declares just what ProcessGroupGloo.hpp names. The layout is not Gloo's.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
