# source: torch/jit/_script.py, _trace.py (2.13.0): TorchScript runs on mps operator by operator
# expect: exit 0
import warnings

import torch

warnings.simplefilter("ignore")


@torch.jit.script
def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * torch.sigmoid(y)
    return y


x = torch.ones(3, device="mps")
assert gate(x, x).is_mps
assert gate(-x, x).tolist() == [1.0, 1.0, 1.0]
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).to("mps").eval()
traced = torch.jit.trace(model, (x,))
assert torch.equal(traced(x), model(x))
scripted = torch.jit.script(model)
assert torch.equal(scripted(x), model(x))
