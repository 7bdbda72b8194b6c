# source: torch/distributed/distributed_c10d.py (2.13.0), Backend.default_device_backend_map: mps goes with gloo
# expect: exit 0
import os

import torch
import torch.distributed as dist

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo")
assert dist.get_world_size() == 1
x = torch.ones(2)
dist.all_reduce(x)
assert x.tolist() == [1, 1]
dist.barrier()
dist.destroy_process_group()
model = torch.nn.Linear(2, 1).to("mps")
assert model(x.to("mps")).is_mps
