"""The programs whose times others published, as far as their authors describe them."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Matmul(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b


class Addmm(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.addmm(c, a, b)


class Linear(nn.Module):
    """The weight is stored transposed."""

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.linear(x, weight.T, bias)


class SumLast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sum(x, dim=-1)


class SumAll(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sum(x)


class MaxAll(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.max(x)


class Gather(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return x[index]


class Conv2d(nn.Module):
    """Both tensors are permuted views of tensors with the channels last."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.conv2d(x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2))


class Conv1d(nn.Module):
    """Both tensors are transposed views."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.conv1d(x.transpose(1, 2), weight.transpose(1, 2))


class Cat(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b], dim=0)


class Relu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x)


class Copy(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return b.copy_(a)


class GraphConvolutions(nn.Module):
    """Two layers with a dense adjacency matrix, for Cora."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1433, 16), nn.Linear(16, 7)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        hidden = functional.dropout(functional.relu(adjacency @ self.first(x)), training=self.training)
        return functional.log_softmax(adjacency @ self.second(hidden), dim=1)


class _TinyVgg(nn.Sequential):
    def __init__(self, features: int) -> None:
        layers: list[nn.Module] = []
        for index, channels in enumerate((3, 10, 10, 10)):
            layers += [nn.Conv2d(channels, 10, 3), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if index % 2 else []
        super().__init__(*layers, nn.Flatten(), nn.Linear(features, 10))


class TinyVgg32(_TinyVgg):
    def __init__(self) -> None:
        super().__init__(10 * 5 * 5)


class TinyVgg224(_TinyVgg):
    def __init__(self) -> None:
        super().__init__(10 * 53 * 53)


class LeNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5), nn.Tanh(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
        )  # fmt: skip


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(784, 256, bias=False), nn.ReLU(), nn.Linear(256, 128, bias=False), nn.ReLU(),
            nn.Linear(128, 64, bias=False), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip
