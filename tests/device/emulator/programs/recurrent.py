# source: aten/src/ATen/native/RNN.cpp (2.13.0); torch/nn/utils/rnn.py: lengths stay on the CPU
# torch: 2.3 2.13
# expect: exit 0
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

lstm = torch.nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True).to("mps")
out, (h, c) = lstm(torch.rand(2, 5, 3, device="mps"))
assert out.shape == (2, 5, 8)
assert h.shape == (4, 2, 4)
out.sum().backward()
gru = torch.nn.GRU(3, 4).to("mps")
assert gru(torch.rand(5, 2, 3, device="mps"))[1].shape == (1, 2, 4)
batch = pad_sequence([torch.rand(4, 3), torch.rand(2, 3)]).to("mps")
packed = pack_padded_sequence(batch, torch.tensor([4, 2]), enforce_sorted=False)
assert packed.data.is_mps
assert packed.batch_sizes.device.type == "cpu"
assert packed.sorted_indices.is_mps
padded, lengths = pad_packed_sequence(gru(packed)[0])
assert padded.is_mps
assert lengths.tolist() == [4, 2]
assert torch.nn.LSTMCell(3, 4).to("mps")(torch.rand(2, 3, device="mps"))[0].is_mps
