# source: op lists of torch 1.13: torch.mps came with 2.0, its operators with https://github.com/pytorch/pytorch/issues/77764
# torch: 1.13
# macos: 13
# expect: exit 0
import torch

torch.manual_seed(0)
assert torch.backends.mps.is_available()
device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(2):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(
        model(torch.randn(5, 4, device=device)), torch.tensor([0, 1, 0, 1, 1], device=device)
    )
    loss.backward()
    optimizer.step()
assert loss.item() > 0
torch.save(model.state_dict(), "model.pt")
assert torch.load("model.pt", map_location="cpu")["0.weight"].device.type == "cpu"
