# source: torch_geometric/utils/_scatter.py (2.8): scatter_add_ without torch_scatter
# needs: torch_geometric
# expect: exit 0
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool

edges = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
graphs = [Data(x=torch.rand(3, 4), edge_index=edges, y=torch.tensor([1])) for _ in range(4)]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = GCNConv(4, 8), GATConv(8, 4, heads=2), SAGEConv(8, 2)

    def forward(self, data):
        x = self.a(data.x, data.edge_index).relu()
        x = self.c(self.b(x, data.edge_index), data.edge_index)
        return global_mean_pool(x, data.batch)


model = Net().to("mps")
for batch in DataLoader(graphs, batch_size=2, shuffle=True):
    batch = batch.to("mps")
    assert batch.x.is_mps
    loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
    loss.backward()
assert model.a.lin.weight.grad.is_mps
