# source: torch/utils/data/_utils/worker.py (2.13.0): a worker's batch must not be on mps; fork and spawn move CPU tensors
# expect: exit 0
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for i in range(4):
            yield {"x": torch.full((2,), float(i)), "worker": info.id}


def collate(items):
    return torch.stack([item["x"] for item in items])


def main():
    loader = DataLoader(Stream(), batch_size=2, num_workers=1, collate_fn=collate)
    total = 0
    for batch in loader:
        assert batch.device.type == "cpu"
        total += batch.to("mps").sum()
    assert total.item() == 12


if __name__ == "__main__":
    main()
