"""Timing by events, the memory of the GPU by NVML, and a step that is captured in a graph."""

import pynvml
import torch

pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(16, 16).to(device)
x = torch.rand(4, 16, device=device)
start = torch.cuda.Event(enable_timing=True)
end = torch.cuda.Event(enable_timing=True)
start.record()
y = model(x)
end.record()
torch.cuda.synchronize()
print("ms", start.elapsed_time(end) >= 0)
print("used", pynvml.nvmlDeviceGetMemoryInfo(handle).used)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = model(x)
graph.replay()
print(y.shape, y.device.type)
