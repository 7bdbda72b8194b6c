# source: torch/utils/data/dataloader.py (2.13.0): pin_memory is off on mps, with a warning
# expect: exit 0
# warns: 'pin_memory' argument is set as true but not supported on MPS now
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split


class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return torch.tensor([float(i)]), i * i


def main():
    loader = DataLoader(Squares(), batch_size=4, shuffle=True, num_workers=2, pin_memory=True)
    seen = []
    for x, y in loader:
        x, y = x.to("mps", non_blocking=True), y.to("mps", non_blocking=True)
        assert y.dtype is torch.int64
        seen += (x.squeeze(1) ** 2 - y).abs().tolist()
    assert seen == [0.0] * 10
    device = torch.device("mps")
    part, _ = random_split(Squares(), [6, 4], generator=torch.Generator().manual_seed(1))
    on_device = TensorDataset(torch.arange(8.0, device=device), torch.ones(8, device=device))
    total = sum(a.sum() for a, _ in DataLoader(on_device, batch_size=3))
    assert total.item() == 28
    assert len(DataLoader(part, batch_size=2)) == 3


if __name__ == "__main__":
    main()
