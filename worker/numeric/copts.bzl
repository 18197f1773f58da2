# What loops need to become vector instructions. None of it changes a result: sums
# are not reordered and nothing is fused.
KERNEL_COPTS = [
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
]
