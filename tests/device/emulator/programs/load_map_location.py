# source: torch/serialization.py (2.13.0), _mps_tag and _mps_deserialize
# torch: 2.3 2.13
# expect: exit 0
import io

import torch

model = torch.nn.LSTM(3, 4)
file = io.BytesIO()
torch.save(model.state_dict(), file)
for place in ("mps", torch.device("mps"), "mps:0", lambda storage, location: storage.mps()):
    file.seek(0)
    state = torch.load(file, map_location=place)
    assert all(v.is_mps for v in state.values()), place
    assert state["weight_ih_l0"].device == torch.device("mps:0")
file.seek(0)
state = torch.load(file, map_location={"cpu": "mps"}, weights_only=True)
assert state["bias_hh_l0"].is_mps
target = torch.nn.LSTM(3, 4).to("mps")
assert str(target.load_state_dict(state)) == "<All keys matched successfully>"
assert torch.equal(target.weight_ih_l0.cpu(), model.weight_ih_l0)
