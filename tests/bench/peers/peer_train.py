"""The train bench by torch: DistributedDataParallel and ZeroRedundancyOptimizer.

Model, data, their order and the parts of a step are those of ../train_bench.cc,
whose model is in worker/trainer/models.cc. So are the memory formats: images and what
is made of them channels last, parameters contiguous. Runs in the peers' environment.
"""
import math
import time
from collections import OrderedDict
from pathlib import Path

import numpy
import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

SEED = 1
MEAN = 0.1307
DEVIATION = 0.3081
SIDE = 28


def conv3x3(before, after, stride):
    return nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)


class ResidualBlock(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = conv3x3(before, after, stride)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = conv3x3(after, after, 1)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = None
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        hidden = torch.relu(self.bn1(self.conv1(x)))
        inner = self.bn2(self.conv2(hidden))
        return torch.relu(inner + (x if self.shortcut is None else self.shortcut(x)))


def resnet():
    return nn.Sequential(OrderedDict([
        ("conv", conv3x3(1, 16, 1)),
        ("bn", nn.BatchNorm2d(16)),
        ("relu", nn.ReLU()),
        ("layer1_0", ResidualBlock(16, 16, 1)),
        ("layer1_1", ResidualBlock(16, 16, 1)),
        ("layer2_0", ResidualBlock(16, 32, 2)),
        ("layer2_1", ResidualBlock(32, 32, 1)),
        ("layer3_0", ResidualBlock(32, 64, 2)),
        ("layer3_1", ResidualBlock(64, 64, 1)),
        ("pool", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),
        ("fc", nn.Linear(64, 10)),
    ]))


def read_idx(path, header):
    return torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint8, offset=header))


def read_digits(folder):
    """uint8[n, 1, 28, 28] and int64[n]"""
    return (read_idx(Path(folder) / "train-images-idx3-ubyte", 16).view(-1, 1, SIDE, SIDE),
            read_idx(Path(folder) / "train-labels-idx1-ubyte", 8).long())


class Train:
    """`tuned`: gradients and parameters live in the buckets by which they are exchanged."""

    def __init__(self, config, digits, tuned):
        self.system = "ddp_tuned" if tuned else "ddp"
        self.images, self.labels = digits
        self.rank, self.ranks = config["rank"], config["ranks"]
        self.batch, self.steps = config["sizes"]["train_batch"], config["sizes"]["train_steps"]
        torch.manual_seed(SEED)
        model = resnet()
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=tuned)
        self.optimizer = ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3, fused=True,
            parameters_as_bucket_view=tuned)
        self.losses = []

    def run(self):
        parts = {}
        begin = last = time.perf_counter_ns()

        def end(part):
            nonlocal last
            now = time.perf_counter_ns()
            parts[part] = parts.get(part, 0) + now - last
            last = now

        for _ in range(self.steps):
            self.take_step(end)
        return (last - begin) // self.steps, {p: ns // self.steps for p, ns in parts.items()}

    def take_step(self, end):
        batches = len(self.labels) // self.batch
        first = (len(self.losses) * self.ranks + self.rank) % batches * self.batch
        images = (self.images[first:first + self.batch]
                  .to(torch.float32, memory_format=torch.channels_last)
                  .div_(255).sub_(MEAN).div_(DEVIATION))
        labels = self.labels[first:first + self.batch]
        end("1 batch")
        loss = cross_entropy(self.model(images), labels)
        end("2 forward with buffers")
        loss.backward()
        self.losses.append(loss.item())
        end("3 backward with all-reduce")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        end("4 optimizer")

    def account(self):
        return {"system": self.system,
                "rank": self.rank,
                "parameters": sum(p.numel() for p in self.model.parameters()),
                "buffers": len(list(self.model.buffers())),
                # JSON has no other numbers.
                "losses": [x if math.isfinite(x) else None for x in self.losses]}
