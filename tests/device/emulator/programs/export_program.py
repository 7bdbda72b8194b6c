# source: torch/export/__init__.py (2.13.0)
# expect: exit 0
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x):
        return torch.relu(self.fc(x)) + 1


model = Net().eval()
on_cpu = torch.export.export(model, (torch.rand(4, 3),))
names = [str(n.target) for n in on_cpu.graph.nodes if n.op == "call_function"]
assert names == ["aten.linear.default", "aten.relu.default", "aten.add.Tensor"]
x = torch.rand(4, 3, device="mps")
model = model.to("mps")
program = torch.export.export(model, (x,))
assert torch.equal(program.module()(x), model(x))
