# source: aten/src/ATen/native/Convolution.cpp (2.13.0), check_input_same_type_as_parameters
# torch: 1.13 2.3 2.13
# expect: exit 1, raises RuntimeError "Input type (MPSFloatType) and weight type (torch.FloatTensor) should be the same" at line 7
import torch

model = torch.nn.Conv2d(1, 2, 3)
model(torch.rand(1, 1, 4, 4, device="mps"))  # raises
