"""A repository of Python packages in one folder, `site`: downloaded by pip, checked, unzipped."""

# Of the packages that are compiled.
_PLATFORMS = [
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
]

def _run(ctx, what, arguments):
    result = ctx.execute(arguments, timeout = 600)
    if result.return_code != 0:
        fail("%s failed (%d): %s %s" % (what, result.return_code, result.stdout, result.stderr))

def _python_packages_impl(ctx):
    ctx.report_progress("downloading from PyPI")
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
    _run(ctx, "downloading the wheels of %s from PyPI" % ctx.name, command)
    for wheel in ctx.path("wheels").readdir():
        _run(ctx, "unpacking " + wheel.basename, [
            "unzip",
            "-q",
            "-o",
            str(wheel),
            "-d",
            "site",
            "-x",
        ] + ctx.attr.exclude)
    ctx.delete("wheels")
    ctx.symlink(ctx.attr.build_file, "BUILD")

python_packages = repository_rule(
    implementation = _python_packages_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "exclude": attr.string_list(
            default = ["*/tests/*"],
            doc = "patterns of files that are left packed",
        ),
        "requirements": attr.label(
            mandatory = True,
            allow_single_file = True,
            doc = "every package with its version and checksum, dependencies included",
        ),
    },
)
