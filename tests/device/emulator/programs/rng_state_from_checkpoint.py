# source: torch/csrc/Generator.cpp and torch/random.py (2.13.0): the state must be a ByteTensor of the CPU
# torch: 2.3 2.13
# expect: exit 1, raises TypeError "RNG state must be a torch.ByteTensor" at line 11
import torch

torch.save({"rng": torch.get_rng_state(), "mps": torch.mps.get_rng_state()}, "state.pt")
state = torch.load("state.pt", map_location="mps")
assert state["rng"].is_mps
torch.set_rng_state(state["rng"].cpu())
torch.mps.set_rng_state(state["mps"].cpu())
torch.set_rng_state(state["rng"])  # raises
