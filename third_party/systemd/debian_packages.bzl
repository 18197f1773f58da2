"""A repository of Debian packages, unpacked into one folder, `root`, and not installed.

apt checks what it downloads by the archive's signatures; versions are those that the machine's
sources have now, as with the packages that tools/setup installs. Nothing outside the repository
is written, and no package's scripts run.
"""

def _run(ctx, what, arguments):
    result = ctx.execute(arguments, timeout = 600)
    if result.return_code != 0:
        fail("%s failed (%d): %s %s" % (what, result.return_code, result.stdout, result.stderr))

def _debian_packages_impl(ctx):
    # Lists and cache of its own: the machine's may be old, absent, or not ours to write.
    ctx.execute(["mkdir", "-p", "apt/lists/partial", "apt/cache/archives/partial"])
    apt = [
        "apt-get",
        "--quiet",
        "-oDir::State::Lists=%s" % ctx.path("apt/lists"),
        "-oDir::Cache=%s" % ctx.path("apt/cache"),
        "-oAPT::Sandbox::User=",
    ]
    ctx.report_progress("reading Debian's lists of packages")
    _run(ctx, "apt-get update", apt + ["update"])
    ctx.report_progress("downloading " + ", ".join(ctx.attr.packages))
    _run(ctx, "apt-get download", apt + ["download"] + ctx.attr.packages)
    for archive in ctx.path(".").readdir():
        if archive.basename.endswith(".deb"):
            _run(ctx, "unpacking " + archive.basename, ["dpkg-deb", "-x", str(archive), "root"])
            ctx.delete(archive)
    ctx.delete("apt")
    ctx.symlink(ctx.attr.build_file, "BUILD")

debian_packages = repository_rule(
    implementation = _debian_packages_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "packages": attr.string_list(mandatory = True),
    },
)
