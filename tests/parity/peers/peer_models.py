"""The models of the comparison, as models.cc has them."""
import torch
from torch import nn

from inputs import read_inputs


class BatchNormNet(nn.Module):
    """A small net whose running statistics follow each rank's own data."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.bn = nn.BatchNorm1d(8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(torch.relu(self.bn(self.fc1(x))))


class Probe(nn.Module):
    """One weight and one buffer, which it multiplies with and remembers."""

    def __init__(self, script, weight, rank):
        super().__init__()
        self.probe = script["probe"]
        self.seen = None
        self.weight = nn.Parameter(weight.clone())
        if script["buffers"] != "none":
            differing = script["buffers"] == "differing"
            marker = torch.full((2 + rank,), 10.0 * (rank + 1)) if differing else torch.ones(2)
            self.register_buffer("marker", marker)

    def forward(self, x):
        y = x.matmul(self.weight).unsqueeze(1)
        if not hasattr(self, self.probe):
            return y
        probe = getattr(self, self.probe)
        self.seen = probe.detach().clone()
        return y * probe


class Task:
    """A model, its data on one rank, and the loss of a batch."""

    def __init__(self, script, inputs_path, rank):
        tensors = {
            name: torch.tensor(values, dtype=torch.float32).reshape(shape)
            for name, (shape, values) in read_inputs(inputs_path).items()
        }
        self.kind = script["model"]
        self.x = tensors[f"{self.kind}/rank{rank}/x"]
        if self.kind == "batchnorm":
            self.module = BatchNormNet()
            self.y = tensors[f"batchnorm/rank{rank}/y"]
            with torch.no_grad():
                for name, parameter in self.module.named_parameters():
                    parameter.copy_(tensors[f"batchnorm/{name}"])
        else:
            self.module = Probe(script, tensors["probe/weight"], rank)

    def loss(self, wrapped, batch):
        """By a forward of `wrapped`, which wraps this task's module."""
        output = wrapped(self.x[batch])
        if self.kind == "batchnorm":
            return (output - self.y[batch]).pow(2).mean()
        return output.mean()
