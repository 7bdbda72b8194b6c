# source: torch/optim/optimizer.py, torch/utils/_foreach_utils.py (2.13.0): a loop over parameters by default on mps
# torch: 2.3 2.13 2.15
# expect: exit 0
import copy

import torch

torch.manual_seed(0)
start = torch.nn.Linear(3, 2)
x, y = torch.rand(8, 3), torch.rand(8, 2)
for make in (
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    lambda p: torch.optim.Adam(p, amsgrad=True),
    lambda p: torch.optim.AdamW(p, weight_decay=0.1),
    lambda p: torch.optim.RMSprop(p, centered=True),
    lambda p: torch.optim.Adagrad(p),
    lambda p: torch.optim.Adamax(p),
):
    losses = []
    for device in ("cpu", "mps"):
        model = copy.deepcopy(start).to(device)
        optimizer = make(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) < 1e-5, (make, losses)
