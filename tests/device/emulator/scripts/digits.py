"""Trains a small CNN on pictures of digits, as the MNIST examples do; the pictures are generated."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    """Bars in noise: where the bar stands is the digit."""

    def __init__(self, length, seed):
        generator = torch.Generator().manual_seed(seed)
        self.targets = torch.randint(0, 10, (length,), generator=generator)
        self.images = torch.randn(length, 1, 28, 28, generator=generator) * 0.3
        for image, target in zip(self.images, self.targets):
            image[0, :, 2 * int(target) + 4] += 2

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.images[index], int(self.targets[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.norm = nn.BatchNorm2d(16)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(2304, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.norm(self.conv2(x)))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = self.dropout2(x)
        x = self.fc2(x)
        return F.log_softmax(x, dim=1)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for index, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if index % args.log_interval == 0:
            print(f"Train Epoch: {epoch} [{index * len(data)}/{len(loader.dataset)}]\tLoss: {loss.item()!r}")


def test(model, device, loader):
    model.eval()
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    total = len(loader.dataset)
    print(f"\nTest set: Average loss: {test_loss / total!r}, Accuracy: {correct}/{total}\n")


def main():
    parser = argparse.ArgumentParser(description="CNN on generated digits")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--no-mps", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=4)
    parser.add_argument("--save-model", metavar="FILE")
    args = parser.parse_args()
    use_mps = not args.no_mps and torch.backends.mps.is_available()

    torch.manual_seed(args.seed)
    device = torch.device("mps" if use_mps else "cpu")

    train_loader = DataLoader(Digits(160, 0), args.batch_size, shuffle=True, num_workers=1)
    test_loader = DataLoader(Digits(64, 1), 64, num_workers=1)
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr * 100)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()

    if args.save_model:
        torch.save(model.state_dict(), args.save_model)


if __name__ == "__main__":
    main()
