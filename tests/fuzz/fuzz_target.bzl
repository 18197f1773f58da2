"""One fuzz target: promises.h."""

def fuzz_target(name, deps):
    """Declares what searches for inputs that break a promise, and what repeats it in short.

    `<name>_promises.cc` defines CheckPromises(); seeds are in `corpus/<name>`, and words for
    mutations, if any, in `<name>.dict`. ./lockstep fuzz finds targets by their folders in `corpus`.

    Makes the cc_test `<name>_corpus_test`, and the binary `<name>_fuzz`, which links libFuzzer:
    only clang has it, so ./lockstep fuzz builds it by --config=fuzz.

    Args:
      name: of the target.
      deps: of `<name>_promises.cc`, besides promises.h.
    """
    native.cc_library(
        name = name + "_promises",
        testonly = True,
        srcs = [name + "_promises.cc"],
        deps = [":promises"] + deps,
    )
    native.cc_test(
        name = name + "_corpus_test",
        size = "small",
        data = native.glob(["corpus/%s/*" % name, name + ".dict"]),
        env = {"LOCKSTEP_FUZZ_TARGET": name},
        linkstatic = True,
        deps = [
            ":corpus_test_main",
            ":" + name + "_promises",
        ],
    )
    native.cc_binary(
        name = name + "_fuzz",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [
            ":libfuzzer_entry",
            ":" + name + "_promises",
        ],
    )
