"""Generated C++ of a folder of .proto files, by the system's protoc."""

def lockstep_proto(name, protos, deps = [], grpc = False, alwayslink = False, visibility = None):
    """A cc_library `name` with the messages, and services if `grpc`, of `protos`.

    Args:
      name: the library.
      protos: files of this package, imported by their path from //proto.
      deps: other lockstep_proto libraries that the files import.
      grpc: also generate service classes.
      alwayslink: link it even if no symbol is used, so that its descriptors are registered.
      visibility: as usual.
    """
    stems = [proto[:-len(".proto")] for proto in protos]
    suffixes = [".pb"] + ([".grpc.pb"] if grpc else [])
    native.filegroup(
        name = name + "_files",
        srcs = protos,
        visibility = ["//proto:__subpackages__", "//tests:__subpackages__"],
    )
    native.genrule(
        name = name + "_generate",
        srcs = [":" + name + "_files"] + [dep + "_files" for dep in deps],
        outs = [stem + suffix + end for stem in stems for suffix in suffixes for end in [".h", ".cc"]],
        cmd = " ".join([
            "protoc --proto_path=proto --cpp_out=$(GENDIR)/proto",
            "--grpc_out=$(GENDIR)/proto --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin" if grpc else "",
            "$(locations :%s_files)" % name,
        ]),
    )
    native.cc_library(
        name = name,
        srcs = [stem + suffix + ".cc" for stem in stems for suffix in suffixes],
        hdrs = [stem + suffix + ".h" for stem in stems for suffix in suffixes],
        alwayslink = alwayslink,
        copts = ["-Wno-unused-variable"],
        # Generated files include each other by their path from //proto.
        strip_include_prefix = "/proto",
        visibility = visibility,
        deps = deps + ["//third_party:grpc" if grpc else "//third_party:protobuf"],
    )
