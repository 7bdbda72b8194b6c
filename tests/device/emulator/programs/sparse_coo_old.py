# source: https://github.com/openai/whisper/issues/1382; https://github.com/pytorch/pytorch/issues/87886
# torch: 2.3
# macos: 14
# expect: exit 1, raises NotImplementedError "Could not run 'aten::_sparse_coo_tensor_with_dims_and_tensors' with arguments from the 'SparseMPS' backend." at line 14
import torch


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("heads", torch.ones(2, 3).to_sparse(), persistent=False)


Decoder().to("mps")  # raises
