"""A repository made of one npm package: packed by npm, checked, unpacked."""

def _npm_package_impl(ctx):
    ctx.report_progress("downloading " + ctx.attr.package)
    result = ctx.execute(["npm", "pack", "--silent", ctx.attr.package], timeout = 600)
    if result.return_code != 0:
        fail("npm pack %s failed (%d): %s" % (ctx.attr.package, result.return_code, result.stderr))
    archive = result.stdout.strip().split("\n")[-1]
    found = ctx.execute(["sha256sum", archive]).stdout.split(" ")[0]
    if found != ctx.attr.sha256:
        fail("%s has checksum %s, expected %s: the registry's package changed" %
             (ctx.attr.package, found, ctx.attr.sha256))
    result = ctx.execute(["tar", "--extract", "--gzip", "--no-same-owner", "--file", archive])
    if result.return_code != 0:
        fail("unpacking %s failed: %s" % (archive, result.stderr))
    ctx.delete(archive)
    ctx.symlink(ctx.attr.build_file, "BUILD")

npm_package = repository_rule(
    implementation = _npm_package_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "package": attr.string(mandatory = True, doc = "name@version"),
        "sha256": attr.string(mandatory = True, doc = "of the packed archive"),
    },
)
