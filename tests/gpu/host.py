"""What the Python of this host says about its PyTorch, NCCL and CUDA runtime, as JSON.

usage: host.py

Run by check.py in a process of its own, as importing torch may take long or crash.
"""
import glob
import json
import os
import sys


def first(patterns):
    found = (path for pattern in patterns for path in sorted(glob.glob(pattern), reverse=True))
    return next((os.path.realpath(path) for path in found), None)


def mapped(name):
    """The file of a library that this process has loaded."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith(name):
                return path
    return None


def main():
    host = {"python": sys.version.split()[0], "torch": None}
    folders = list(sys.path)
    try:
        import torch

        root = list(torch.__path__)[0]
        folders.insert(0, os.path.dirname(root))
        host["torch"] = {
            "version": torch.__version__,
            "cuda": torch.version.cuda,
            "gpus": torch.cuda.device_count(),
            "cxx11_abi": bool(torch.compiled_with_cxx11_abi()),
            "root": root,
        }
    except Exception as error:  # also of what it loads
        host["no_torch"] = str(error)
    # Those that torch uses; else of NVIDIA's wheels; else of the system.
    system = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"]
    environment = [os.path.join(sys.prefix, "lib")]
    host["libnccl"] = mapped("libnccl.so") or first(
        [f"{folder}/nvidia/nccl/lib/libnccl.so.2" for folder in folders if folder]
        + [f"{folder}/libnccl.so.2" for folder in environment + system])
    # A runtime of version 12 is named too: the loader says what is wrong with it.
    host["libcudart"] = mapped("libcudart") or first(
        [f"{folder}/nvidia/cu13/lib/libcudart.so.13" for folder in folders if folder]
        + [f"{folder}/libcudart.so.13" for folder in environment]
        + ["/usr/local/cuda*/lib64/libcudart.so.13"]
        + [f"{folder}/libcudart.so.13" for folder in system]
        + [f"{folder}/nvidia/cuda_runtime/lib/libcudart.so.1*" for folder in folders if folder]
        + ["/usr/local/cuda*/lib64/libcudart.so.1*"])
    print(json.dumps(host))


if __name__ == "__main__":
    main()
