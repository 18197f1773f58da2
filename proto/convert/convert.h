// All conversions between wire messages and plain values, but for grpc::Status
// (status_convert.h).
//
// ToProto gives a message for any value that its Validate accepts. FromProto
// never trusts: it answers InvalidArgument, naming the field by its path in the
// message ("hello.manifest.buffers[3].dtype: ..."), before it allocates for a
// list that is too long. Policies, manifests and plans that FromProto returns
// have passed their Validate. Pure functions.
#ifndef LOCKSTEP_PROTO_CONVERT_CONVERT_H_
#define LOCKSTEP_PROTO_CONVERT_CONVERT_H_

#include "proto/convert/messages_convert.h"  // IWYU pragma: export
#include "proto/convert/model_convert.h"     // IWYU pragma: export
#include "proto/convert/policy_convert.h"    // IWYU pragma: export
#include "proto/convert/status_message.h"    // IWYU pragma: export
#include "proto/convert/time_convert.h"      // IWYU pragma: export

#endif  // LOCKSTEP_PROTO_CONVERT_CONVERT_H_
