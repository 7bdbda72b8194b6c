# source: torch/_dynamo/backends (2.13.0); numbers of eager and compiled programs agree within tolerance
# expect: exit 0
import torch


@torch.compile(fullgraph=False)
def f(x, y):
    return torch.nn.functional.gelu(x) @ y


x = torch.rand(3, 3, device="mps")
torch.testing.assert_close(f(x, x), torch.nn.functional.gelu(x) @ x)
model = torch.compile(torch.nn.Linear(3, 2).to("mps"), backend="aot_eager")
model(x).sum().backward()
assert model.weight.grad.is_mps
torch.compiler.reset()
