"""A repository made of Python wheels: downloaded by pip, checked, unzipped."""

_PLATFORMS = [
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_25_x86_64",
    "manylinux_2_18_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
]

def _run(ctx, what, arguments):
    result = ctx.execute(arguments, timeout = 1800)
    if result.return_code != 0:
        fail("%s failed (%d): %s %s" % (what, result.return_code, result.stdout, result.stderr))

def _wheels_impl(ctx):
    ctx.report_progress("downloading LibTorch and NCCL (0.8 GB)")
    command = [
        "python3",
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--python-version=3.11",
        "--implementation=cp",
        "--abi=cp311",
        "--dest=wheels",
        "--requirement",
        str(ctx.path(ctx.attr.requirements)),
    ]
    for platform in _PLATFORMS:
        command += ["--platform", platform]
    _run(ctx, "downloading LibTorch's wheels from PyPI", command)

    # What libtorch_cuda needs is left packed: it is not linked here.
    for wheel in ctx.path("wheels").readdir():
        ctx.report_progress("unpacking " + wheel.basename)
        _run(ctx, "unpacking " + wheel.basename, [
            "unzip",
            "-q",
            "-o",
            str(wheel),
            "-x",
            "torch/lib/libtorch_cuda*",
            "torch/lib/libtorch_nvshmem*",
            "*.py",
        ])
    ctx.delete("wheels")
    _run(ctx, "removing foreign build files", [
        "find",
        ".",
        "-mindepth",
        "2",
        "(",
        "-name",
        "BUILD",
        "-o",
        "-name",
        "BUILD.bazel",
        "-o",
        "-name",
        "WORKSPACE",
        ")",
        "-delete",
    ])
    ctx.symlink(ctx.attr.build_file, "BUILD")

wheels = repository_rule(
    implementation = _wheels_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "requirements": attr.label(mandatory = True, allow_single_file = True),
    },
)
