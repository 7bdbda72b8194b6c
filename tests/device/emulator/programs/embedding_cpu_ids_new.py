# source: aten/src/ATen/native/mps/OperationUtils.h (2.15.0), mtl_setBuffer; Indexing.mm: a Metal kernel since 2.14
# torch: 2.15
# macos: 26
# expect: exit 1, raises RuntimeError "Passed CPU tensor to MPS op" at line 8
import torch

table = torch.nn.Embedding(10, 4).to("mps")
table(torch.tensor([1, 2]))  # raises
