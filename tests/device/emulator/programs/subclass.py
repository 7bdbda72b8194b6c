# source: torch/_tensor.py (2.13.0), Tensor.__torch_function__: results are of the subclass
# expect: exit 0
import torch


class Named(torch.Tensor):
    label = "x"

    def twice(self):
        return self * 2


a = torch.ones(2).as_subclass(Named)
assert type(a) is Named
assert Named(torch.ones(2)).twice().tolist() == [2, 2]
b = a.to("mps")
assert type(b) is Named
assert b.device.type == "mps"
assert type(b + 1) is Named
assert b.twice().tolist() == [2.0, 2.0]
c = torch.ones(2, device="mps").as_subclass(Named)
assert type(c.twice()) is Named
assert c.twice().is_mps
assert type(c.cpu()) is Named
assert isinstance(c.as_subclass(torch.Tensor), torch.Tensor)
